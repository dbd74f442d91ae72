// Attention of all layers and heads: a small picture for each, one of them large. Point at a token:
// its row lights up in every head, and the text is tinted by its weights in the large one.

import { arrows, el, fill, percent } from "./dom.js";
import { colours, picture, stretch, weight } from "./heat.js";

const SMALL = 84; // pixels
const MOST_LABELS = 48; // tokens that still fit beside the large picture

export class AttentionView {
  constructor() {
    this.title = el("h3", {});
    this.readout = el("p", { class: "note readout", role: "status" });
    this.rows = el("div", { class: "sentence", role: "group", "aria-label": "Query tokens; arrow keys move" });
    this.columns = el("div", { class: "sentence", hidden: true, "aria-label": "Key tokens" });
    this.grid = el("div", { class: "heads", role: "group", "aria-label": "Attention heads by layer; arrow keys move, Enter enlarges" });
    this.large = el("canvas", { class: "large-heat", role: "img" });
    this.labels = el("div", { class: "heat-labels", "aria-hidden": "true" });
    this.stage = el("div", { class: "heat-stage marked" }, this.large, el("i", { class: "row-mark" }));
    this.node = el("div", { class: "attention" }, this.rows, this.columns, el("div", { class: "attention-panes" }, this.grid, el("div", { class: "column" }, this.title, el("div", { class: "heat-frame" }, this.labels, this.stage), this.readout)));
    arrows(this.rows, "button");
    arrows(this.grid, "button");
    this.large.addEventListener("pointermove", (event) => this.hover(event));
    document.addEventListener("theme", () => this.repaint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
  }

  /** `rows` look at `columns` (labels); `load(layer)` gives { weights, heads, layers }. */
  async show({ rows, columns, load, selected }) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    Object.assign(this, { rowLabels: rows, columnLabels: columns, load, layers: [] });
    this.isSelf = rows === columns;
    this.at = Math.min(this.at ?? rows.length - 1, rows.length - 1);
    this.drawSentences();
    const first = await load(0);
    if (turn !== this.turn) return;
    const exists = selected && selected.layer in Array(first.layers).fill() && selected.head in Array(first.heads).fill();
    this.chosen = exists ? selected : { layer: 0, head: 0 };
    this.layers = Array.from({ length: first.layers }, () => null);
    this.layers[0] = first;
    this.numHeads = first.heads;
    this.drawGrid();
    await this.enlarge(this.chosen.layer, this.chosen.head);
  }

  drawSentences() {
    const token = (label, index) =>
      el("button", { type: "button", class: "look", onpointerenter: () => this.point(index), onfocus: () => this.point(index), onclick: () => this.point(index) }, label);
    fill(this.rows, this.rowLabels.map(token));
    this.columns.hidden = this.isSelf;
    fill(this.columns, this.isSelf ? [] : this.columnLabels.map((label) => el("span", { class: "look" }, label)));
  }

  drawGrid() {
    this.watcher?.disconnect();
    this.watcher = new IntersectionObserver((entries) => entries.forEach((entry) => entry.isIntersecting && this.ensure(Number(entry.target.dataset.layer)).catch(() => {})), { rootMargin: "200px" });
    const lines = this.layers.map((_, layer) => {
      const heads = Array.from({ length: this.numHeads }, (_, head) =>
        el("button", { type: "button", class: "head marked", "aria-label": `layer ${layer + 1}, head ${head + 1}`, title: `layer ${layer + 1}, head ${head + 1}`, onclick: () => this.enlarge(layer, head).catch((error) => (this.readout.textContent = error.message)) }, el("canvas", {}), el("i", { class: "row-mark" })),
      );
      const line = el("div", { class: "layer", "data-layer": String(layer) }, el("span", { class: "note" }, String(layer + 1)), heads);
      this.watcher.observe(line);
      return line;
    });
    fill(this.grid, el("p", { class: "note" }, "by layer and head; rows (queries) attend to columns (keys)"), lines);
  }

  /** Fetch and paint a layer, once. */
  async ensure(layer) {
    const turn = this.turn;
    this.layers[layer] ??= await this.load(layer);
    if (turn !== this.turn) return;
    const loaded = this.layers[layer];
    const size = this.rowLabels.length * this.columnLabels.length;
    this.table ??= colours();
    loaded.pictures ??= Array.from({ length: loaded.heads }, (_, head) => picture(loaded.weights.subarray(head * size, (head + 1) * size), this.rowLabels.length, this.columnLabels.length, this.table));
    const canvases = this.grid.querySelectorAll(`[data-layer="${layer}"] canvas`);
    canvases.forEach((canvas, head) => canvas.dataset.painted === String(turn) || this.paintSmall(canvas, loaded.pictures[head]));
  }

  paintSmall(canvas, image) {
    stretch(image, canvas, SMALL, SMALL);
    canvas.dataset.painted = String(this.turn);
  }

  async enlarge(layer, head) {
    const chosen = (this.chosen = { layer, head });
    await this.ensure(layer);
    if (this.chosen !== chosen) return; // another one was chosen meanwhile
    this.grid.querySelectorAll(".head").forEach((each, index) => each.setAttribute("aria-pressed", String(index === layer * this.numHeads + head)));
    this.title.textContent = `Layer ${layer + 1}, head ${head + 1}`;
    this.drawLarge();
    this.point(this.at);
    this.node.dispatchEvent(new CustomEvent("enlarged", { detail: this.chosen }));
  }

  drawLarge() {
    const { layer, head } = this.chosen;
    const [rows, columns] = [this.rowLabels.length, this.columnLabels.length];
    const width = Math.min(520, this.node.clientWidth - 90);
    const height = Math.min(width * (rows / columns), 640);
    this.large.style.width = `${width}px`;
    this.large.style.height = `${height}px`;
    stretch(this.layers[layer].pictures[head], this.large, width, height);
    this.large.setAttribute("aria-label", `Attention weights of layer ${layer + 1}, head ${head + 1}: ${rows} queries, ${columns} keys`);
    const fits = rows <= MOST_LABELS && height / rows >= 9;
    fill(this.labels, fits ? this.rowLabels.map((label) => el("span", {}, label)) : []);
    this.labels.style.height = `${height}px`;
  }

  /** Light up a token's row everywhere. */
  point(row) {
    if (!this.layers[this.chosen?.layer ?? 0]) return;
    this.at = row;
    // Not on the whole view: all that inherits a property is restyled when it changes.
    for (const part of [this.grid, this.stage]) {
      part.style.setProperty("--row", String(row / this.rowLabels.length));
      part.style.setProperty("--row-height", String(1 / this.rowLabels.length));
    }
    const weights = this.row(row);
    const targets = (this.isSelf ? this.rows : this.columns).children;
    for (let column = 0; column < targets.length; column++) shade(targets[column], weights[column]);
    for (const list of [this.rows, this.labels]) {
      list.querySelector(".here")?.classList.remove("here");
      list.children[row]?.classList.add("here");
    }
    const best = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 3);
    const said = best.map((column) => `${this.columnLabels[column]} ${percent(weight(weights[column]))}`);
    this.readout.textContent = `${this.rowLabels[row]} (token ${row + 1}) attends to ${said.join(", ")}`;
  }

  row(row) {
    const { layer, head } = this.chosen;
    const [rows, columns] = [this.rowLabels.length, this.columnLabels.length];
    return this.layers[layer].weights.subarray((head * rows + row) * columns, (head * rows + row + 1) * columns);
  }

  hover(event) {
    const box = this.large.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * this.rowLabels.length);
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.columnLabels.length);
    if (row < 0 || row >= this.rowLabels.length || !(column in this.columnLabels)) return;
    if (row !== this.at) this.point(row);
    this.readout.textContent = `${this.rowLabels[row]} (token ${row + 1}) attends to ${this.columnLabels[column]} (token ${column + 1}): ${percent(weight(this.row(row)[column]))}`;
  }

  /** Other colours, the same weights. */
  repaint() {
    this.table = colours();
    if (!this.layers?.length) return;
    this.layers.forEach((layer) => layer && delete layer.pictures);
    this.grid.querySelectorAll("canvas").forEach((canvas) => delete canvas.dataset.painted);
    this.layers.forEach((layer, index) => layer && this.ensure(index));
    this.drawLarge();
  }
}

/** Tint a token by a weight; most do not change from one row to the next. */
function shade(token, integer) {
  const value = Math.sqrt(weight(integer)).toFixed(2);
  if (token.dataset.weight === value) return;
  token.dataset.weight = value;
  token.style.setProperty("--w", value);
}
