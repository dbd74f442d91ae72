// Translate: a sentence in, its translation out, where each word comes from, and the beam search.

import { post } from "../api.js";
import { Alignment } from "../alignment.js";
import { Beam } from "../beam.js";
import { debounced, el, fill, setValue } from "../dom.js";
import { attentionLayer, weight } from "../heat.js";
import { legend } from "../scale.js";
import { FIRST_SENTENCE, rememberSoon } from "../state.js";
import { Task } from "../task.js";
import { vocabularyOf } from "../vocabulary.js";

export const make = (root) => new Translate(root);

class Translate {
  constructor(root) {
    this.task = new Task("The translation failed");
    const translateSoon = debounced(500, () => this.translate());
    const changed = () => rememberSoon("translate", { text: this.input.value, beam: this.beam.value }) || translateSoon();
    this.input = el("textarea", { id: "sentence", rows: "2", spellcheck: "false", oninput: changed });
    this.beam = el("input", { id: "beam", type: "number", min: "1", max: "16", oninput: changed });
    this.answer = el("p", { class: "translation", lang: "", "aria-live": "polite" });
    this.others = el("ol", { class: "others note" });
    this.task.next = [this.input];
    this.alignment = new Alignment();
    this.tree = new Beam();
    this.found = el("div", { class: "column figures", hidden: true },
      el("h2", {}, "Cross-attention"), el("p", { class: "note" }, "The mean over all layers and heads. The view Inside shows each head."), this.alignment.node,
      el("h2", {}, "Beam search"), el("p", { class: "note" }, "One column per step, the most probable hypothesis first. The numbers are the probability of the token and the log-probability of the hypothesis. ", legend()), this.tree.node,
    );
    root.append(
      el("div", { class: "column" },
        el("div", { class: "two" },
          el("div", { class: "column" }, el("label", { for: "sentence" }, "Sentence"), this.input, el("div", { class: "row" }, el("label", {}, "beam ", this.beam), this.task.stopButton)),
          el("div", { class: "column" }, el("span", {}, "Translation"), this.answer, this.others)),
        this.task.status, this.task.problem, this.found),
    );
  }

  async enter({ model, card, params }) {
    this.beam.value = params.get("beam") ?? "4";
    setValue(this.input, params.get("text") ?? (this.input.value || FIRST_SENTENCE));
    Object.assign(this, { model, card });
    if (this.shown !== this.question()) await this.translate();
  }

  /** All that the answer depends on. */
  question() {
    return JSON.stringify([this.card, this.input.value, this.beam.value]);
  }

  translate() {
    const [sentence, beam, question] = [this.input.value, Number(this.beam.value) || 4, this.question()];
    return this.task.run("Translating…", async (signal) => {
      this.shown = null;
      if (!sentence.trim()) {
        this.found.hidden = true;
        this.answer.textContent = "";
        fill(this.others);
        return "Type a sentence in the source language.";
      }
      await this.show(await post("/inside/translation", { model: this.model, sentence, beam }, signal), sentence, signal);
      this.shown = question;
    });
  }

  async show(found, sentence, signal) {
    const [source, target] = await Promise.all(["source", "target"].map((side) => vocabularyOf(this.model, signal, side)));
    const best = found.translations[0];
    this.answer.textContent = best.text || "(nothing)";
    fill(this.others, found.translations.map(({ text, score }) => el("li", {}, `${text} `, el("span", { class: "figure" }, score.toFixed(3)))));
    this.found.hidden = false;
    this.tree.show(found, target);
    const body = { model: this.model, sentence, target: best.ids, kind: "cross" };
    const load = (layer) => attentionLayer("/inside/translation/attention", { ...body, layer }, signal);
    const layers = [await load(0)];
    while (layers.length < layers[0].layers) layers.push(await load(layers.length));
    this.alignment.show(source.sentence(found.source), target.sentence(best.ids), mean(layers));
  }
}

/** The mean of all heads of all layers, row by row. */
function mean(layers) {
  const { rows, columns } = layers[0];
  const sums = Array.from({ length: rows }, () => new Float64Array(columns));
  const count = layers.reduce((sum, layer) => sum + layer.heads, 0);
  for (const { weights } of layers) weights.forEach((each, i) => (sums[Math.floor(i / columns) % rows][i % columns] += weight(each) / count));
  return sums.map((row) => [...row]);
}
