// The length of the hidden state along the layers: a thin line for each position, a thick one for
// the position that is pointed at.

import { shape } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [620, 130, 46, 20];

export class Norms {
  constructor() {
    this.node = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "norms", role: "img" });
  }

  show(norms, labels) {
    Object.assign(this, { norms, labels });
    const known = norms.flat().filter((norm) => norm !== null);
    this.most = Math.max(...known, 1e-9);
    const parts = [0, 0.5, 1].map((part) => this.tick(part * this.most));
    const all = labels.map((_, position) => this.path(position)).join("");
    this.bold = shape("path", { class: "norm-here" });
    this.text = shape("text", { class: "norm-label", "text-anchor": "end", x: WIDTH - 4, y: "12" });
    const names = norms.map((_, layer) => shape("text", { class: "norm-tick", "text-anchor": "middle", x: this.x(layer), y: HEIGHT - 5 }, layer === 0 ? "emb" : String(layer)));
    this.node.replaceChildren(...parts.flat(), ...names, shape("path", { class: "norm-all", d: all }), this.bold, this.text);
    this.node.setAttribute("aria-label", `L2 norm of the hidden state after each layer, up to ${this.most.toFixed(1)}`);
    this.point(labels.length - 1);
  }

  point(position) {
    if (!this.bold) return;
    this.bold.setAttribute("d", this.path(position));
    const last = this.norms.at(-1)[position];
    this.text.textContent = `${this.labels[position]}: ${this.norms[0][position]?.toFixed(1)} → ${last?.toFixed(1)}`;
  }

  tick(value) {
    const y = this.y(value);
    return [shape("line", { class: "norm-grid", x1: LEFT, x2: WIDTH, y1: y, y2: y }), shape("text", { class: "norm-tick", "text-anchor": "end", x: LEFT - 6, y: y + 4 }, value.toFixed(value < 10 ? 1 : 0))];
  }

  path(position) {
    return this.norms.map((layer, index) => `${index ? "L" : "M"}${this.x(index).toFixed(1)} ${this.y(layer[position] ?? 0).toFixed(1)}`).join("");
  }

  x(layer) {
    return LEFT + 12 + (layer / Math.max(1, this.norms.length - 1)) * (WIDTH - LEFT - 24);
  }

  y(value) {
    return 8 + (1 - value / this.most) * (HEIGHT - BOTTOM - 10);
  }
}
