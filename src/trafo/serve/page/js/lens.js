// Logit lens: what each layer would predict at each position, the last layer on top. A cell that
// agrees with the model's final prediction is bold.

import { el, fill, percent } from "./dom.js";
import { tint } from "./scale.js";

export class Lens {
  constructor(pointed) {
    this.pointed = pointed;
    this.readout = el("p", { class: "note readout", role: "status" });
    this.table = el("table", { class: "lens" });
    this.node = el("div", { class: "column" }, this.readout, el("div", { class: "lens-scroll", tabindex: "0", role: "region", "aria-label": "Logit lens, scrolls" }, this.table));
    for (const kind of ["pointerover", "focusin"]) this.table.addEventListener(kind, (event) => this.point(event));
    this.table.addEventListener("keydown", (event) => this.move(event));
  }

  show({ ids, probabilities }, labels, vocabulary) {
    Object.assign(this, { ids, probabilities, labels, vocabulary });
    const last = ids.length - 1;
    const head = el("tr", {}, el("th", { scope: "col" }, "after"), labels.map((label) => el("th", { scope: "col" }, label)));
    const lines = ids.map((_, layer) => this.line(layer, last)).reverse();
    fill(this.table, el("thead", {}, head), el("tbody", {}, lines));
    this.readout.textContent = "Point at a cell to see what this layer would predict if it were the last one.";
    const cell = this.table.querySelector("td");
    if (cell) cell.tabIndex = 0;
  }

  line(layer, last) {
    const name = layer === 0 ? "embedding" : `layer ${layer}`;
    const cells = this.ids[layer].map((best, position) => {
      const wins = best[0] === this.ids[last][position][0];
      return tint(el("td", { class: wins ? "wins" : null, tabindex: "-1", "data-layer": String(layer), "data-position": String(position) }, this.vocabulary.label(best[0])), this.probabilities[layer][position][0]);
    });
    return el("tr", {}, el("th", { scope: "row" }, name), cells);
  }

  point(event) {
    const cell = event.target.closest("td");
    if (!cell) return;
    const [layer, position] = [Number(cell.dataset.layer), Number(cell.dataset.position)];
    const best = this.ids[layer][position].map((id, rank) => `${this.vocabulary.label(id)} ${percent(this.probabilities[layer][position][rank])}`);
    this.readout.textContent = `${layer === 0 ? "The embedding" : `Layer ${layer}`} after ${this.labels[position]}: ${best.join(", ")}`;
    this.pointed(position);
  }

  move(event) {
    const [rows, columns] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const cell = event.target.closest("td");
    if (!cell || (!rows && !columns)) return;
    event.preventDefault();
    const line = cell.parentElement.parentElement.rows[cell.parentElement.rowIndex - 1 + rows];
    const next = line?.cells[cell.cellIndex + columns];
    if (next?.tagName === "TD") next.focus();
  }
}
