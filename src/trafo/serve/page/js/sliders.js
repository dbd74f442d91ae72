// The settings of sampling, as sliders. They are kept in the address.

import { el } from "./dom.js";

const SETTINGS = [
  { name: "temperature", key: "t", min: 0, max: 2, step: 0.05, start: 0.8, say: (v) => (v === 0 ? "0, greedy" : v.toFixed(2)) },
  { name: "topK", key: "k", min: 0, max: 100, step: 1, start: 0, say: (v) => (v === 0 ? "off" : String(v)) },
  { name: "topP", key: "p", min: 0.05, max: 1, step: 0.01, start: 0.95, say: (v) => (v >= 1 ? "off" : v.toFixed(2)) },
  { name: "minP", key: "m", min: 0, max: 0.5, step: 0.01, start: 0, say: (v) => (v === 0 ? "off" : v.toFixed(2)) },
];
const TITLES = { temperature: "temperature", topK: "top-k", topP: "top-p", minP: "min-p" };

export class Sliders {
  constructor(changed) {
    this.values = {};
    this.inputs = new Map();
    this.node = el("fieldset", { class: "sliders" }, el("legend", {}, "Sampling"), SETTINGS.map((setting) => this.slider(setting, changed)));
  }

  slider(setting, changed) {
    const id = `slider-${setting.name}`;
    const output = el("output", { for: id });
    const input = el("input", { type: "range", id, min: String(setting.min), max: String(setting.max), step: String(setting.step) });
    const update = () => {
      this.values[setting.name] = Number(input.value);
      output.textContent = setting.say(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
    };
    input.addEventListener("input", () => {
      update();
      changed();
    });
    this.inputs.set(setting, { input, update });
    return el("div", { class: "slider" }, el("label", { for: id }, TITLES[setting.name]), input, output);
  }

  /** Take the values from the address. */
  read(params) {
    for (const [setting, { input, update }] of this.inputs) {
      input.value = params.get(setting.key) ?? String(setting.start);
      update();
    }
  }

  /** For the address: only what is not at its start. */
  toAddress() {
    const entries = SETTINGS.map(({ name, key, start }) => [key, this.values[name] === start ? null : this.values[name]]);
    return Object.fromEntries(entries);
  }

  /** The fields of a request. */
  toRequest() {
    const { temperature, topK, topP, minP } = this.values;
    return { temperature, top_p: topP, min_p: minP, ...(topK > 0 ? { top_k: topK } : {}) };
  }

  /** In words, for the line under the text. */
  toWords() {
    const words = SETTINGS.map(({ name, say }) => [TITLES[name], say(this.values[name])]);
    return words.filter(([, said]) => said !== "off").map((pair) => pair.join(" ")).join(", ");
  }
}
