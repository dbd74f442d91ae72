// Two sentences, one below the other: point at a token of either and see where it comes from.

import { arrows, el, fill, percent } from "./dom.js";

export class Alignment {
  constructor() {
    this.source = el("div", { class: "sentence wide", role: "group", "aria-label": "Source tokens" });
    this.target = el("div", { class: "sentence wide", role: "group", "aria-label": "Translation tokens" });
    this.readout = el("p", { class: "note readout", role: "status" }, "Point at a token to see which tokens it attends to.");
    this.node = el("div", { class: "column alignment" }, el("div", { class: "two" }, this.source, this.target), this.readout);
    arrows(this.source, "button");
    arrows(this.target, "button");
  }

  /** `weights[target][source]`: means over all layers and heads. */
  show(source, target, weights) {
    Object.assign(this, { labels: { source, target }, weights });
    const token = (side) => (label, index) => el("button", { type: "button", class: "look", onpointerenter: () => this.point(side, index), onfocus: () => this.point(side, index) }, label);
    fill(this.source, source.map(token("source")));
    fill(this.target, target.map(token("target")));
  }

  point(side, index) {
    const other = side === "target" ? "source" : "target";
    const column = side === "target" ? this.weights[index] : this.weights.map((row) => row[index]);
    const most = Math.max(...column, 1e-9);
    [...this[side].children].forEach((token, i) => {
      token.classList.toggle("here", i === index);
      token.style.setProperty("--w", "0");
    });
    [...this[other].children].forEach((token, i) => {
      token.classList.remove("here");
      token.style.setProperty("--w", (column[i] / most).toFixed(3));
    });
    const best = [...column.keys()].sort((a, b) => column[b] - column[a]).slice(0, 3);
    const verb = side === "target" ? "attends to" : "is attended to by";
    this.readout.textContent = `${this.labels[side][index]} ${verb} ${best.map((i) => `${this.labels[other][i]} ${percent(column[i])}`).join(", ")}`;
  }
}
