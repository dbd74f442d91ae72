// The next token's distribution: the model's own as an outline, what is sampled from as a bar.

import { arrows, el, fill, number, percent } from "./dom.js";
import { entropy, ranking, reshaped, softmax } from "./sampling.js";

const ROWS = 12;

export class Distribution {
  /** `choose(id)` is called when a row is pressed. */
  constructor(choose) {
    this.choose = choose;
    this.rows = el("ol", { class: "bars" });
    this.title = el("h3", {});
    this.summary = el("p", { class: "note" });
    this.head = el("p", { class: "bar-row rest bar-head", "aria-hidden": "true" }, el("span", {}), el("span", {}), el("span", { class: "figure" }, "sampled"), el("span", { class: "figure" }, "model"));
    this.node = el("div", { class: "distribution" }, this.title, this.head, this.rows, this.summary);
    arrows(this.rows, "button");
  }

  /** New logits, at a place in the text; `chosen` is the id that stands there. */
  show(title, logits, vocabulary, chosen) {
    Object.assign(this, { logits, vocabulary, chosen });
    this.title.textContent = title;
    this.head.hidden = false;
    this.ranked = ranking(logits);
    this.before = softmax(logits);
  }

  /** Say why there is nothing. */
  clear(message) {
    this.logits = null;
    this.title.textContent = "";
    this.head.hidden = true;
    fill(this.rows);
    this.summary.textContent = message;
  }

  /** Draw with these settings; only arithmetic on what is here. */
  draw(settings) {
    if (!this.logits) return;
    const after = reshaped(this.logits, this.ranked, settings);
    const shown = [...this.ranked.slice(0, ROWS)];
    if (this.chosen !== null && !shown.includes(this.chosen)) shown[ROWS - 1] = this.chosen;
    const most = Math.max(this.before[this.ranked[0]], after[this.ranked[0]]);
    fill(this.rows, shown.map((id) => this.row(id, after, most)), this.rest(shown, after));
    const kept = after.reduce((count, p) => count + (p > 0), 0);
    this.summary.textContent =
      `${number(kept)} of ${number(after.length)} tokens can be sampled · ` +
      `entropy ${entropy(this.before).toFixed(2)} → ${entropy(after).toFixed(2)} bits`;
  }

  row(id, after, most) {
    const [own, now] = [this.before[id], after[id]];
    const label = this.vocabulary.special.has(id) ? "(end of text)" : this.vocabulary.label(id);
    const isChosen = id === this.chosen;
    const button = el(
      "button",
      {
        type: "button",
        class: `bar-row${isChosen ? " chosen" : ""}${now === 0 ? " out" : ""}`,
        "aria-label": `${label}: the model says ${percent(own)}, sampled with ${percent(now)}${isChosen ? ", chosen" : ""}`,
        "data-id": String(id),
        onclick: () => this.choose(id),
      },
      el("span", { class: "bar-label" }, label),
      bar(own / most, now / most),
      el("span", { class: "figure" }, percent(now)),
      el("span", { class: "figure dim" }, percent(own)),
    );
    return el("li", {}, button);
  }

  rest(shown, after) {
    const others = after.length - shown.length;
    if (others <= 0) return null;
    const total = (p) => Math.max(0, 1 - shown.reduce((sum, id) => sum + p[id], 0));
    return el(
      "li",
      { class: "bar-row rest" },
      el("span", { class: "bar-label" }, `… ${number(others)} more`),
      el("span", {}),
      el("span", { class: "figure" }, percent(total(after))),
      el("span", { class: "figure dim" }, percent(total(this.before))),
    );
  }
}

function bar(own, now) {
  const node = el("span", { class: "bar-track" }, el("span", { class: "bar-now" }), el("span", { class: "bar-own" }));
  node.firstChild.style.width = `${100 * Math.min(1, now)}%`;
  node.lastChild.style.width = `${100 * Math.min(1, own)}%`;
  return node;
}
