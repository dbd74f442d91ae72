// Write: the model continues a prompt. Every token is coloured by its probability; press one to see
// its alternatives, choose one, and the model continues from there.

import { bytes, events, placeOf, post, Refused } from "../api.js";
import { Branches, BranchList } from "../branches.js";
import { Distribution } from "../distribution.js";
import { debounced, disable, el, number, setValue } from "../dom.js";
import { legend } from "../scale.js";
import { Sliders } from "../sliders.js";
import { remember, rememberSoon } from "../state.js";
import { Task } from "../task.js";
import { TokenText } from "../token_text.js";
import { vocabularyOf } from "../vocabulary.js";

const FIRST_PROMPT = "Once upon a time";
const WAIT = 1000; // milliseconds between requests for the place in the queue

export const make = (root) => new Write(root);

class Write {
  constructor(root) {
    this.trees = new Map(); // fingerprint of a vocabulary -> what was written in it
    this.kept = null; // the text in the address
    this.task = new Task("Generation failed");
    this.sliders = new Sliders(() => this.settingsChanged());
    this.distribution = new Distribution((id) => this.choose(id));
    this.text = new TokenText((index) => this.look(index), () => this.look(null));
    this.tree = new BranchList((node) => this.follow(node));
    this.askLogits = debounced(60, () => this.loadDistribution());
    this.build(root);
  }

  build(root) {
    this.prompt = el("textarea", { id: "prompt", rows: "3", spellcheck: "false", placeholder: "Text for the model to continue", oninput: () => rememberSoon("write", { prompt: this.prompt.value }) });
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.write();
    });
    this.go = el("button", { type: "button", class: "primary", onclick: () => this.write() }, "Write");
    this.more = el("button", { type: "button", onclick: () => this.work("Writing…", (signal) => this.generate(signal)), disabled: true }, "Go on");
    this.task.next = [this.go];
    this.seed = el("input", { id: "seed", type: "number", min: "0", step: "1", oninput: () => this.saveSettings() });
    this.length = el("input", { id: "length", type: "number", min: "1", max: "1000", step: "1", oninput: () => this.saveSettings() });
    const fields = el("div", { class: "row" }, el("label", {}, "seed ", this.seed), el("label", {}, "tokens ", this.length), this.go, this.task.stopButton, this.more);
    root.append(
      el("div", { class: "pages" },
        el("div", { class: "column" }, el("label", { for: "prompt" }, "Prompt"), this.prompt, fields, this.task.problem, this.text.node, this.task.status, el("p", { class: "note" }, legend()), this.tree.node),
        el("aside", { class: "column side", "aria-label": "The next token" }, this.distribution.node, this.sliders.node),
      ),
    );
  }

  async enter({ model, card, params }) {
    this.sliders.read(params);
    this.seed.value = params.get("seed") ?? "7";
    this.length.value = params.get("n") ?? "64";
    setValue(this.prompt, params.get("prompt") ?? (this.prompt.value || FIRST_PROMPT));
    const isLink = params.get("text") !== this.kept;
    if (model !== this.model || card.created !== this.card.created || isLink) {
      this.pending = { model, card, params, isLink };
      return this.work("Loading…", () => {});
    }
    const isNewer = card.step !== this.card.step;
    this.card = card;
    if (isNewer) this.look(this.selected);
  }

  /** Show the text of a link, or what was written by another model. */
  async load({ model, card, params, isLink }, signal) {
    const vocabulary = await vocabularyOf(model, signal);
    let branches = this.branches;
    if (isLink || !branches) branches = params.get("text") ? Branches.unpack(params, vocabulary) : null;
    else if (branches.vocabulary.fingerprint !== vocabulary.fingerprint) branches = await this.encodeAgain(branches, model, vocabulary, signal);
    branches?.forgetProbabilities();
    Object.assign(this, { model, card, branches, vocabulary, kept: params.get("text"), pending: null });
    if (!branches) {
      this.tree.node.hidden = true;
      this.text.empty(this.kept ? "The text of this link was written by a model with another vocabulary." : "Press Write, or Ctrl+Enter in the prompt.");
      return;
    }
    this.draw();
    await this.score(signal);
  }

  /** The same text in the ids of another vocabulary, beside what was written in that one before. */
  async encodeAgain(old, model, vocabulary, signal) {
    const [prompt, rest] = old.texts();
    const branches = this.trees.get(vocabulary.fingerprint) ?? new Branches(vocabulary);
    if (branches.texts().join("") === prompt + rest) return branches;
    const ids = await this.encode(prompt, model, vocabulary, signal);
    const { tokens } = await post("/tokenize", { model, prompt: rest, add_special_tokens: false }, signal);
    branches.start(ids);
    for (const id of tokens) branches.add(id);
    return branches;
  }

  /** The ids of a prompt; an empty one begins where a text ends. */
  async encode(prompt, model, vocabulary, signal) {
    const { tokens } = await post("/tokenize", { model, prompt }, signal);
    const ids = tokens.length ? tokens : [...vocabulary.ends].slice(0, 1);
    if (!ids.length) throw new Refused(400, "the prompt is empty");
    return ids;
  }

  /** Do one thing at a time, with the model that was chosen, then show and keep what it left. */
  async work(label, job) {
    const running = this.task.run(label, async (signal) => {
      if (this.pending) await this.load(this.pending, signal);
      return job(signal);
    });
    this.buttons();
    if (await running) this.finished();
  }

  /** Start again from the prompt; what was written before stays as a branch. */
  write() {
    return this.work("Reading the prompt…", async (signal) => {
      const ids = await this.encode(this.prompt.value, this.model, this.vocabulary, signal);
      this.branches ??= new Branches(this.vocabulary);
      this.branches.start(ids);
      this.draw();
      await this.score(signal);
      return this.generate(signal);
    });
  }

  /** The probabilities of tokens that the model did not write itself. */
  async score(signal) {
    const path = this.branches.path();
    if (path.every((node) => node.probability !== undefined)) return;
    const { logprobs } = await post("/inside/scores", { model: this.model, ids: this.branches.ids() }, signal);
    path.forEach((node, index) => (node.probability ??= logprobs[index] === null ? null : Math.exp(logprobs[index])));
  }

  /** Sample from the end of the path on; returns how it went. */
  async generate(signal) {
    const { branches } = this;
    this.select(null);
    this.draw();
    const begun = performance.now();
    let [count, reason] = [0, null];
    const body = { model: this.model, prompt: seen(branches.ids(), this.card.context_length), stream: true, logprobs: 0, max_tokens: Number(this.length.value) || 64, seed: Number(this.seed.value) || 0, ...this.sliders.toRequest() };
    const id = crypto.randomUUID?.() ?? String(Math.random());
    const waiting = setInterval(() => this.sayPlace(id, signal), WAIT);
    try {
      for await (const { choices } of events("/v1/completions", body, signal, id)) {
        if (choices.length) clearInterval(waiting);
        for (const choice of choices) {
          choice.logprobs?.token_ids?.forEach((id, i) => {
            this.text.append(branches.add(id, Math.exp(choice.logprobs.token_logprobs[i])), branches);
            count += 1;
          });
          reason = choice.finish_reason ?? reason;
        }
        this.task.status.textContent = this.describe(count, begun, null);
      }
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      reason = "stopped";
    } finally {
      clearInterval(waiting);
      document.dispatchEvent(new CustomEvent("answered"));
    }
    return this.describe(count, begun, reason);
  }

  /** Show the place in the queue. */
  async sayPlace(id, signal) {
    const place = await placeOf(id).catch(() => null);
    if (place && !signal.aborted) this.task.status.textContent = `The model is busy: place ${number(place)} in the queue.`;
  }

  finished() {
    this.buttons();
    if (!this.branches) return this.distribution.clear("The distribution of the next token is shown here.");
    this.trees.set(this.branches.vocabulary.fingerprint, this.branches);
    this.draw();
    this.text.announce(this.branches.vocabulary.text(this.branches.ids()));
    const packed = this.branches.pack();
    this.kept = packed.text;
    remember("write", { ...packed, prompt: this.prompt.value, ...this.settings() });
    this.look(null);
  }

  leave() {
    this.task.stop();
  }

  draw() {
    this.text.draw(this.branches);
    this.tree.draw(this.branches);
  }

  buttons() {
    disable(this.more, this.task.isRunning || !this.branches, this.task.stopButton);
  }

  /** Select a token, or (null) the place after the last one. */
  select(index) {
    this.selected = index;
    this.text.select(index);
  }

  /** Select a place and show what could stand there. */
  look(index) {
    this.select(index);
    this.askLogits();
  }

  async loadDistribution() {
    const { branches, selected: index } = this;
    if (!branches || this.pending || this.task.isRunning) return;
    const path = branches.path();
    const before = index === null ? branches.ids() : branches.ids().slice(0, index);
    if (!before.length) return this.distribution.clear("There is nothing before the first token.");
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    try {
      const { buffer } = await bytes("/inside/logits", { model: this.model, ids: before }, signal);
      if (signal.aborted || branches !== this.branches || index !== this.selected) return;
      const title = index === null ? "Next token" : `Token ${index + 1}: alternatives`;
      this.place = index === null ? path.at(-1) : path[index].parent;
      this.distribution.show(title, new Float32Array(buffer), branches.vocabulary, index === null ? null : path[index].id);
      this.distribution.draw(this.sliders.values);
    } catch (error) {
      if (error.name !== "AbortError") this.distribution.clear(error.message);
    }
  }

  /** Continue from an alternative, in the place whose distribution is shown. */
  choose(id) {
    const { branches, place } = this;
    if (branches.vocabulary.ends.has(id)) return;
    const hadFocus = this.distribution.node.contains(document.activeElement);
    this.work("Writing…", (signal) => {
      if (branches !== this.branches) return;
      branches.leaf = place;
      branches.add(id, this.distribution.before[id]);
      const writing = this.generate(signal);
      if (hadFocus) this.text.focus(branches.path().length - 1);
      return writing;
    });
  }

  /** Show another branch. */
  follow(node) {
    const { branches } = this;
    this.work("Reading…", (signal) => {
      if (branches !== this.branches) return;
      branches.follow(node);
      return this.score(signal);
    });
  }

  settingsChanged() {
    this.distribution.draw(this.sliders.values);
    this.saveSettings();
  }

  saveSettings() {
    rememberSoon("write", this.settings());
  }

  settings() {
    return { ...this.sliders.toAddress(), seed: this.seed.value, n: this.length.value };
  }

  /** How the writing goes, or went. */
  describe(count, begun, reason) {
    const seconds = (performance.now() - begun) / 1000;
    const written = this.branches.path().filter((node) => !node.given && node.probability);
    const bits = written.reduce((sum, node) => sum - Math.log2(node.probability), 0) / Math.max(1, written.length);
    const ended = { stop: "end of text", length: "maximum length reached", stopped: "stopped" }[reason];
    const parts = [`${number(count)} tokens`, count ? `${number(count / seconds)} tokens/s` : null, `surprisal ${bits.toFixed(1)} bits per token`, ended ?? "writing…", `${this.sliders.toWords()}, seed ${this.seed.value}`];
    return parts.filter(Boolean).join(" · ");
  }
}

/** What the model sees of a text: the newest ids, from where generate/window.py has them begin. */
function seen(ids, context) {
  const kept = Math.max(1, Math.floor(context / 2));
  const step = context + 1 - kept;
  return ids.slice(Math.ceil(Math.max(0, ids.length - context) / step) * step);
}
