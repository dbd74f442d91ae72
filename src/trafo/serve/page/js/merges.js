// One token's history, step by step: bytes at first, then one merge after the other.

import { post } from "./api.js";
import { disable, el, fill, number, plural } from "./dom.js";
import { hex, latin1, visible } from "./vocabulary.js";

const PACE = 700; // milliseconds a step, when it plays by itself

export class Merges {
  constructor() {
    this.title = el("h2", {});
    this.facts = el("p", { class: "note" });
    this.list = el("ol", { class: "merge-steps", "aria-live": "polite" });
    this.back = el("button", { type: "button", onclick: () => this.go(this.step - 1) }, "Back");
    this.next = el("button", { type: "button", onclick: () => this.go(this.step + 1) }, "Next merge");
    this.play = el("button", { type: "button", onclick: () => this.replay() }, "Replay");
    this.buttons = el("div", { class: "row", hidden: true }, this.back, this.next, this.play);
    this.node = el("div", { class: "column merges" }, this.title, this.facts, this.buttons, this.list);
    this.clear();
  }

  /** Show no token. */
  clear() {
    clearInterval(this.timer);
    this.asking?.abort();
    this.buttons.hidden = true;
    this.title.textContent = "Merges";
    this.facts.textContent = "Click a token to see the merges that made it.";
    fill(this.list);
  }

  async show(model, id, vocabulary) {
    this.clear();
    const { signal } = (this.asking = new AbortController());
    const bytes = vocabulary.bytes(id);
    this.title.textContent = vocabulary.label(id);
    this.facts.textContent = `id ${number(id)} · ${plural(bytes.length, "byte")}: ${hex(bytes)}`;
    let answer;
    try {
      answer = await post("/inside/merges", { model, id }, signal);
    } catch (error) {
      if (error.name !== "AbortError") this.facts.textContent = error.message;
      return;
    }
    this.steps = answer.steps;
    this.numMerges = answer.num_merges;
    const made = this.steps.length > 1;
    this.buttons.hidden = !made;
    if (!this.steps.length) this.facts.textContent += " · a special token: not made by merges";
    else if (this.steps.at(-1).parts.length > 1) this.facts.textContent += " · looked up whole: merges alone do not make it";
    else if (!made) this.facts.textContent += " · a single byte";
    else this.facts.textContent += ` · ${plural(this.steps.length - 1, "merge")} of ${number(this.numMerges)}`;
    this.go(this.steps.length - 1);
  }

  /** Show the steps up to one. */
  go(step) {
    this.step = Math.max(0, Math.min(step, this.steps.length - 1));
    fill(this.list, this.steps.slice(0, this.step + 1).map((each, index) => this.line(each, index)));
    disable(this.back, this.step === 0, this.next);
    disable(this.next, this.step === this.steps.length - 1, this.back);
  }

  /** From the bytes on, one merge after the other. */
  replay() {
    clearInterval(this.timer);
    this.go(0);
    this.timer = setInterval(() => {
      this.go(this.step + 1);
      if (this.step === this.steps.length - 1) clearInterval(this.timer);
    }, PACE);
  }

  line({ parts, rank, at }, index) {
    const texts = parts.map((part, place) => el("span", { class: `part${place === at ? " made" : ""}` }, visible(latin1(part))));
    const said = index === 0 ? "bytes" : `merge ${number(rank + 1)}`;
    return el("li", {}, el("span", { class: "parts" }, texts), el("span", { class: "figure dim" }, said));
  }
}
