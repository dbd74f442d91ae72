// Write: the model continues a prompt. Every token is coloured by its probability; press one to see
// its alternatives, choose one, and the model continues from there.

import { bytes, events, placeOf, post, Refused } from "../api.js";
import { Branches, BranchList } from "../branches.js";
import { Distribution } from "../distribution.js";
import { debounced, el, notice, number } from "../dom.js";
import { legend } from "../scale.js";
import { Sliders } from "../sliders.js";
import { packIds, remember, unpackIds } from "../state.js";
import { TokenText } from "../token_text.js";
import { vocabularyOf } from "../vocabulary.js";

const FIRST_PROMPT = "Once upon a time";
const WAIT = 1000; // milliseconds between requests for the place in the queue

export const make = (root) => new Write(root);

class Write {
  constructor(root) {
    this.sliders = new Sliders(() => this.settingsChanged());
    this.distribution = new Distribution((id) => this.choose(id));
    this.text = new TokenText((index) => this.look(index), () => this.look(null));
    this.tree = new BranchList((node) => this.follow(node));
    this.saveSettings = debounced(300, () => remember({ ...this.sliders.toAddress(), seed: this.seed.value, n: this.length.value }));
    this.askLogits = debounced(60, () => this.loadDistribution());
    this.build(root);
  }

  build(root) {
    this.prompt = el("textarea", { id: "prompt", rows: "3", spellcheck: "false", placeholder: "Text for the model to continue", oninput: debounced(300, () => remember({ prompt: this.prompt.value })) });
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.write();
    });
    this.go = el("button", { type: "button", class: "primary", onclick: () => this.write() }, "Write");
    this.stop = el("button", { type: "button", onclick: () => this.stopWriting(), disabled: true }, "Stop");
    this.more = el("button", { type: "button", onclick: () => this.generate(), disabled: true }, "Go on");
    this.seed = el("input", { id: "seed", type: "number", min: "0", step: "1", oninput: () => this.saveSettings() });
    this.length = el("input", { id: "length", type: "number", min: "1", max: "1000", step: "1", oninput: () => this.saveSettings() });
    this.status = el("p", { class: "status", role: "status" });
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    const fields = el("div", { class: "row" }, el("label", {}, "seed ", this.seed), el("label", {}, "tokens ", this.length), this.go, this.stop, this.more);
    root.append(
      el("div", { class: "pages" },
        el("div", { class: "column" }, el("label", { for: "prompt" }, "Prompt"), this.prompt, fields, this.problem, this.text.node, this.status, el("p", { class: "note" }, legend()), this.tree.node),
        el("aside", { class: "column side", "aria-label": "The next token" }, this.distribution.node, this.sliders.node),
      ),
    );
  }

  async enter({ model, card, params }) {
    const isNew = this.model !== model;
    if (isNew) this.stopWriting();
    Object.assign(this, { model, card });
    this.sliders.read(params);
    this.seed.value = params.get("seed") ?? "7";
    this.length.value = params.get("n") ?? "64";
    if (document.activeElement !== this.prompt) this.prompt.value = params.get("prompt") ?? (this.prompt.value || FIRST_PROMPT);
    if (!isNew && this.branches) return;
    this.vocabulary = await vocabularyOf(model);
    await this.restore(params);
  }

  /** The text of a link: its ids are in the address. */
  async restore(params) {
    const ids = unpackIds(params.get("text"));
    const isKnown = ids.length > 0 && ids.every((id) => id < this.vocabulary.size);
    this.branches = isKnown ? new Branches(ids.slice(0, Number(params.get("from")))) : null;
    if (!isKnown) {
      this.text.empty("Press Write, or Ctrl+Enter in the prompt.");
      this.distribution.clear("The distribution of the next token is shown here.");
      return;
    }
    for (const id of ids.slice(this.branches.promptLength)) this.branches.add(id, null);
    await this.score();
    this.draw();
    this.look(null);
  }

  /** Start again from the prompt. */
  async write() {
    this.stopWriting();
    notice(this.problem);
    try {
      const { tokens } = await post("/tokenize", { model: this.model, prompt: this.prompt.value });
      const ids = tokens.length ? tokens : [...this.vocabulary.ends].slice(0, 1);
      if (!ids.length) throw new Refused(400, "the prompt is empty");
      this.branches = new Branches(ids);
      await this.score();
      await this.generate();
    } catch (error) {
      this.showProblem(error);
    }
  }

  /** The prompt's own probabilities, and those of a link's text. */
  async score() {
    const path = this.branches.path();
    const { logprobs } = await post("/inside/scores", { model: this.model, ids: this.branches.ids() });
    path.forEach((node, index) => (node.probability = logprobs[index] === null ? null : Math.exp(logprobs[index])));
  }

  /** Sample from the end of the path on. */
  async generate() {
    this.stopWriting();
    notice(this.problem);
    const writing = new AbortController();
    this.writing = writing;
    this.look(null);
    this.draw();
    this.buttons();
    const begun = performance.now();
    let [count, reason] = [0, null];
    const body = { model: this.model, prompt: seen(this.branches.ids(), this.card.context_length), stream: true, logprobs: 0, max_tokens: Number(this.length.value) || 64, seed: Number(this.seed.value) || 0, ...this.sliders.toRequest() };
    const id = crypto.randomUUID?.() ?? String(Math.random());
    const waiting = setInterval(() => this.sayPlace(id), WAIT);
    try {
      for await (const { choices } of events("/v1/completions", body, writing.signal, id)) {
        if (choices.length) clearInterval(waiting);
        for (const choice of choices) {
          choice.logprobs?.token_ids?.forEach((id, i) => {
            this.text.append(this.branches.add(id, Math.exp(choice.logprobs.token_logprobs[i])), this.branches);
            count += 1;
          });
          reason = choice.finish_reason ?? reason;
        }
        this.say(count, begun, null);
      }
    } catch (error) {
      if (error.name !== "AbortError") this.showProblem(error);
      reason = "stopped";
    } finally {
      clearInterval(waiting);
    }
    if (this.writing !== writing) return;
    this.writing = null;
    this.say(count, begun, reason);
    this.finished();
  }

  /** Show the place in the queue. */
  async sayPlace(id) {
    const writing = this.writing;
    const place = await placeOf(id).catch(() => null);
    if (place && writing && this.writing === writing) this.status.textContent = `The model is busy: place ${number(place)} in the queue.`;
  }

  finished() {
    document.dispatchEvent(new CustomEvent("answered"));
    this.buttons();
    this.draw();
    remember({ text: packIds(this.branches.ids()), from: this.branches.promptLength, prompt: this.prompt.value, ...this.sliders.toAddress(), seed: this.seed.value, n: this.length.value });
    this.look(null);
  }

  stopWriting() {
    this.writing?.abort();
  }

  leave() {
    this.stopWriting();
  }

  draw() {
    this.text.draw(this.branches, this.vocabulary);
    this.tree.draw(this.branches, this.vocabulary);
  }

  buttons() {
    this.go.disabled = false;
    this.stop.disabled = !this.writing;
    this.more.disabled = Boolean(this.writing) || !this.branches;
  }

  /** Select a token, or (null) the place after the last one, and show what could stand there. */
  look(index) {
    this.selected = index;
    this.text.select(index);
    if (this.writing || !this.branches) return;
    this.askLogits();
  }

  async loadDistribution() {
    const [index, ids] = [this.selected, this.branches.ids()];
    const before = index === null ? ids : ids.slice(0, index);
    if (!before.length) return this.distribution.clear("There is nothing before the first token.");
    try {
      const { buffer } = await bytes("/inside/logits", { model: this.model, ids: before });
      if (index !== this.selected) return;
      const title = index === null ? "Next token" : `Token ${index + 1}: alternatives`;
      this.distribution.show(title, new Float32Array(buffer), this.vocabulary, index === null ? null : ids[index]);
      this.distribution.draw(this.sliders.values);
    } catch (error) {
      this.distribution.clear(error.message);
    }
  }

  /** Continue from the chosen alternative. */
  choose(id) {
    if (this.vocabulary.ends.has(id)) return;
    const probability = this.distribution.before[id];
    const path = this.branches.path();
    if (this.selected === null) this.branches.add(id, probability);
    else this.branches.replace(path[this.selected], id, probability);
    this.generate();
  }

  /** Show another branch. */
  follow(node) {
    this.stopWriting();
    this.branches.follow(node);
    this.finished();
  }

  settingsChanged() {
    this.distribution.draw(this.sliders.values);
    this.saveSettings();
  }

  say(count, begun, reason) {
    const seconds = (performance.now() - begun) / 1000;
    const written = this.branches.path().slice(this.branches.promptLength).filter((node) => node.probability);
    const bits = written.reduce((sum, node) => sum - Math.log2(node.probability), 0) / Math.max(1, written.length);
    const ended = { stop: "end of text", length: "maximum length reached", stopped: "stopped" }[reason];
    const parts = [`${number(count)} tokens`, count ? `${number(count / seconds)} tokens/s` : null, `surprisal ${bits.toFixed(1)} bits per token`, ended ?? "writing…", `${this.sliders.toWords()}, seed ${this.seed.value}`];
    this.status.textContent = parts.filter(Boolean).join(" · ");
    if (reason) this.text.announce(this.vocabulary.text(this.branches.ids()));
  }

  showProblem(error) {
    const wait = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
    notice(this.problem, `Generation failed: ${error.message}.${wait}`);
  }
}

/** What the model sees of a text: the newest ids, from where generate/window.py has them begin. */
function seen(ids, context) {
  const kept = Math.max(1, Math.floor(context / 2));
  const step = context + 1 - kept;
  return ids.slice(Math.ceil(Math.max(0, ids.length - context) / step) * step);
}
