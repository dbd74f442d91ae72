// Tokens: text becomes tokens as you type. Press one to see the merges that made it.

import { post } from "../api.js";
import { arrows, debounced, el, fill, number, setValue } from "../dom.js";
import { Merges } from "../merges.js";
import { remember, rememberSoon } from "../state.js";
import { Task } from "../task.js";
import { hex, vocabularyOf } from "../vocabulary.js";

const FIRST_TEXT = "The tokenizer splits unbelievably long words, 12,345 numbers, naïve café 😀 and\n\ttabs.";
const HUES = 5;

export const make = (root) => new Tokens(root);

class Tokens {
  constructor(root) {
    this.task = new Task("The text could not be encoded", 150);
    const encodeSoon = debounced(40, () => this.encode());
    this.input = el("textarea", { id: "text", rows: "5", spellcheck: "false", "aria-label": "Text", oninput: () => rememberSoon("tokens", { text: this.input.value }) || encodeSoon() });
    this.task.next = [this.input];
    this.second = el("select", { "aria-label": "Second tokenizer", onchange: () => remember("tokens", { second: this.second.value || null }) || this.encode() });
    this.panels = el("div", { class: "token-panels" });
    this.merges = new Merges();
    this.beside = el("label", { class: "note" }, "second tokenizer ", this.second);
    root.append(
      el("div", { class: "pages" },
        el("div", { class: "column" }, el("label", { for: "text" }, "Text"), this.input, el("div", { class: "row" }, this.beside, this.task.stopButton, this.task.status), this.task.problem, this.panels),
        el("aside", { class: "column side", "aria-label": "Merges of a token" }, this.merges.node),
      ),
    );
  }

  async enter({ model, cards, params }) {
    if (this.model !== model) this.merges.clear();
    this.model = model;
    setValue(this.input, params.get("text") ?? (this.input.value || FIRST_TEXT));
    const others = cards.filter((card) => card.id !== model);
    fill(this.second, el("option", { value: "" }, "none"), others.map((card) => el("option", { value: card.id, selected: card.id === params.get("second") }, card.id)));
    this.beside.hidden = others.length === 0;
    await this.encode();
  }

  encode() {
    const text = this.input.value;
    const models = [this.model, this.second.value].filter(Boolean);
    return this.task.run("Tokenizing…", async (signal) => {
      const panels = await Promise.all(models.map((model) => this.panel(model, text, signal)));
      signal.throwIfAborted();
      fill(this.panels, panels);
    });
  }

  async panel(model, text, signal) {
    const vocabulary = await vocabularyOf(model, signal);
    const { ids } = await post("/inside/tokens", { model, text }, signal);
    const size = new TextEncoder().encode(text).length;
    const facts = `${number(ids.length)} tokens · ${number([...text].length)} characters · ${number(size)} bytes · ${ids.length ? (size / ids.length).toFixed(2) : "–"} bytes per token`;
    const chips = el("div", { class: "chips", role: "group", "aria-label": "Tokens" }, ids.map((id, index) => this.chip(id, index, vocabulary, model)));
    arrows(chips, "button");
    return el("section", { class: "column", "aria-label": `Tokens of ${model}` }, el("h2", {}, model, " ", el("span", { class: "note", "data-facts": "" }, facts)), ids.length ? chips : el("p", { class: "dim" }, "Type something."));
  }

  chip(id, index, vocabulary, model) {
    const bytes = vocabulary.bytes(id);
    const label = vocabulary.label(id);
    const press = () => {
      this.panels.querySelector('[aria-pressed="true"]')?.setAttribute("aria-pressed", "false");
      chip.setAttribute("aria-pressed", "true");
      this.merges.show(model, id, vocabulary);
    };
    const chip = el(
      "button",
      { type: "button", class: `chip hue-${index % HUES}`, "aria-pressed": "false", title: `bytes ${hex(bytes)}`, "aria-label": `${label}, id ${id}, ${bytes.length} bytes`, onclick: press },
      el("span", { class: "chip-text" }, label),
      el("span", { class: "chip-id" }, String(id)),
    );
    return label.includes("↵") ? [chip, el("span", { class: "line-end" })] : chip;
  }
}
