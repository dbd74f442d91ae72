// Inside: attention of every layer and head on your own text, the logit lens, and the norms of the
// hidden states.

import { post } from "../api.js";
import { AttentionView } from "../attention.js";
import { debounced, el, select, setValue } from "../dom.js";
import { attentionLayer } from "../heat.js";
import { Lens } from "../lens.js";
import { Norms } from "../norms.js";
import { legend } from "../scale.js";
import { FIRST_SENTENCE, remember, rememberSoon } from "../state.js";
import { Task } from "../task.js";
import { vocabularyOf } from "../vocabulary.js";

const FIRST_TEXT = "Once upon a time, there was a little girl named Lily.";

export const make = (root) => new Inside(root);

class Inside {
  constructor(root) {
    this.task = new Task("This text could not be read");
    const lookSoon = debounced(350, () => this.look());
    this.input = el("textarea", { id: "inside-text", rows: "2", spellcheck: "false", oninput: () => rememberSoon("inside", { text: this.input.value }) || lookSoon() });
    this.task.next = [this.input];
    this.attention = new AttentionView();
    this.norms = new Norms();
    this.encoderNorms = new Norms();
    this.lens = new Lens((position) => this.norms.point(position));
    this.kind = el("select", { "aria-label": "Which attention", onchange: () => remember("inside", { kind: this.kind.value }) || this.look() }, ["cross", "encoder", "decoder"].map((kind) => el("option", { value: kind }, `${kind}${kind === "cross" ? "-attention" : "'s self-attention"}`)));
    this.attention.node.addEventListener("enlarged", ({ detail }) => remember("inside", { layer: detail.layer, head: detail.head }));
    this.found = el("div", { class: "column figures", hidden: true },
      el("h2", {}, "Attention"), this.kind, this.attention.node, (this.below = el("div", { class: "column figures" },
      el("h2", {}, "Logit lens"), el("p", { class: "note" }, "The next token that each layer would predict. Bold: the same as the model's final prediction. ", legend()), this.lens.node,
      el("h2", {}, "Norms of the hidden states"), el("p", { class: "note" }, "Embedding on the left, last layer on the right; a thin line for each token."), this.norms.node,
      (this.encoder = el("div", { class: "column" }, el("h2", {}, "Norms in the encoder"), this.encoderNorms.node)))),
    );
    root.append(el("div", { class: "column" }, el("label", { for: "inside-text" }, "Text"), this.input, el("div", { class: "row" }, this.task.stopButton, this.task.status), this.task.problem, this.found));
  }

  async enter({ model, card, params }) {
    Object.assign(this, { model, card });
    select(this.kind, params.get("kind") ?? "cross");
    const isTranslator = card.kind === "translation";
    this.kind.hidden = !isTranslator;
    this.encoder.hidden = !isTranslator;
    setValue(this.input, params.get("text") ?? (isTranslator ? FIRST_SENTENCE : FIRST_TEXT));
    this.selected = params.has("layer") ? { layer: Number(params.get("layer")), head: Number(params.get("head")) } : null;
    if (this.shown !== this.question()) await this.look();
  }

  /** All that the figures depend on. */
  question() {
    return JSON.stringify([this.card, this.input.value, this.kind.value]);
  }

  look() {
    const [text, question] = [this.input.value, this.question()];
    return this.task.run("Reading…", async (signal) => {
      this.shown = null;
      const status = await (this.card.kind === "translation" ? this.readTranslation(text, signal) : this.read(text, signal));
      this.shown = question;
      return status;
    });
  }

  async read(text, signal) {
    const model = this.model;
    const vocabulary = await vocabularyOf(model, signal);
    const { tokens: ids } = await post("/tokenize", { model, prompt: text }, signal);
    this.found.hidden = ids.length === 0;
    if (!ids.length) return "Type a text.";
    const labels = ids.map((id) => vocabulary.label(id));
    const layers = await post("/inside/layers", { model, ids }, signal);
    this.lens.show(layers, labels, vocabulary);
    this.norms.show(layers.norms, labels);
    const load = (layer) => attentionLayer("/inside/attention", { model, ids, layer }, signal);
    await this.attention.show({ rows: labels, columns: labels, load, selected: this.attention.chosen ?? this.selected });
    return `${ids.length} tokens`;
  }

  /** A sentence and the model's own translation of it. */
  async readTranslation(sentence, signal) {
    const model = this.model;
    const [source, target] = await Promise.all(["source", "target"].map((side) => vocabularyOf(model, signal, side)));
    const found = await post("/inside/translation", { model, sentence }, signal);
    const { ids, text } = found.translations[0];
    const [sources, targets] = [source.sentence(found.source), target.sentence(ids)];
    const kind = this.kind.value;
    this.found.hidden = false;
    const load = (layer) => attentionLayer("/inside/translation/attention", { model, sentence, target: ids, kind, layer }, signal);
    const rows = kind === "encoder" ? sources : targets;
    await this.attention.show({ rows, columns: kind === "decoder" ? rows : sources, load, selected: this.attention.chosen ?? this.selected });
    await this.readLayers(sentence, ids, sources, target, signal);
    return `${sources.length} tokens → ${targets.length} tokens: ${text}`;
  }

  /** The decoder's logit lens and norms; each column is labelled by the last token it has read. */
  async readLayers(sentence, ids, sources, target, signal) {
    const layers = await post("/inside/translation/layers", { model: this.model, sentence, target: ids }, signal).catch((error) => {
      if (error.status !== 400) throw error; // a recurrent model has no layers
      return null;
    });
    this.below.hidden = layers === null;
    if (!layers) return;
    const read = ["(start)", ...ids.slice(0, -1).map((id) => target.label(id))];
    this.lens.show(layers, read, target);
    this.norms.show(layers.norms, read);
    this.encoderNorms.show(layers.encoder_norms, sources);
  }
}
