// Runs: curves of all runs, live while they train. Compare by step, tokens or time, and read their
// samples.

import { get } from "../api.js";
import { Chart, lineStyles } from "../chart.js";
import { el, fill, number, select, shape } from "../dom.js";
import { remember, rememberSoon } from "../state.js";

const POLL = 2000; // milliseconds
const FIRST_SHOWN = 4;
const X = {
  step: { name: "step", of: (record) => record.step },
  tokens: { name: "tokens", of: (record) => record.total_tokens },
  minutes: { name: "minutes", of: (record) => (record.seconds === undefined ? null : record.seconds / 60) },
};
const Y = {
  loss: { name: "training loss", kind: "train", of: (record) => record.loss },
  validation: { name: "validation loss", kind: "validation", of: (record) => record.loss },
  bits: { name: "bits per byte", kind: "validation", of: (record) => record.bits_per_byte },
  speed: { name: "tokens per second", kind: "train", of: (record) => record.tokens_per_second },
  norm: { name: "gradient norm", kind: "train", of: (record) => record.grad_norm },
  bleu: { name: "BLEU", kind: "validation", of: (record) => record.bleu },
};

export const make = (root) => new Runs(root);

class Runs {
  constructor(root) {
    this.runs = new Map(); // name -> { about, records, cursor, samples, problem }
    this.chart = new Chart();
    this.x = choice("by", X, () => this.changed());
    this.y = choice("curve", Y, () => this.changed());
    this.smoothing = el("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: "0", "aria-label": "Smoothing", oninput: () => this.changed() });
    this.log = el("input", { type: "checkbox", onchange: () => this.changed() });
    this.table = el("table", { class: "runs-table" });
    this.samples = el("div", { class: "column samples", "aria-live": "polite" });
    this.status = el("p", { class: "status", role: "status" });
    this.empty = el("p", { class: "empty", hidden: true }, "No runs in the folder of the served models yet. Start one with ", el("code", {}, "trafo train FILE"), " and it appears here while it trains.");
    const controls = el("div", { class: "row" }, this.y.label, this.x.label, el("label", { class: "smoothing" }, "smoothing", this.smoothing), el("label", {}, this.log, " log scale"));
    this.found = el("div", { class: "column" }, controls, this.chart.node, this.chart.readout, el("div", { class: "scroll-x" }, this.table), el("h2", {}, "Samples"), this.samples);
    root.append(el("div", { class: "column" }, this.status, this.empty, this.found));
  }

  async enter({ params }) {
    select(this.x.select, params.get("x") ?? "step");
    select(this.y.select, params.get("y") ?? "loss");
    this.smoothing.value = params.get("smooth") ?? "0";
    this.log.checked = params.get("log") === "1";
    this.linked = params.get("runs")?.split(",").filter(Boolean) ?? [];
    this.wanted = params.has("runs") ? new Set(this.linked) : null;
    clearInterval(this.timer);
    this.timer = setInterval(() => document.hidden || this.refresh(), POLL);
    await this.refresh();
  }

  leave() {
    clearInterval(this.timer);
  }

  /** Look for new runs, and for new records of those that are shown and train. */
  async refresh() {
    if (this.busy) return;
    this.busy = true;
    try {
      const { runs } = await get("/inside/runs");
      for (const about of runs) this.take(about);
      for (const name of this.runs.keys()) if (!runs.some((run) => run.name === name)) this.runs.delete(name);
      const isLost = this.linked.length > 0 && !this.linked.some((name) => this.runs.has(name));
      if (!this.wanted || isLost) this.wanted = new Set(runs.slice(0, FIRST_SHOWN).map((run) => run.name));
      await Promise.all([...this.runs.values()].filter((run) => this.isDue(run)).map((run) => this.load(run)));
      this.draw();
    } catch (error) {
      this.status.textContent = `The runs could not be read: ${error.message}. Trying again…`;
    } finally {
      this.busy = false;
    }
  }

  take(about) {
    const known = this.runs.get(about.name);
    if (known) known.about = about;
    else this.runs.set(about.name, { about, records: [], cursor: "", samples: [] });
  }

  isDue(run) {
    const wasTraining = run.wasTraining;
    run.wasTraining = run.about.training;
    return this.wanted.has(run.about.name) && (!run.cursor || run.about.training || wasTraining);
  }

  async load(run) {
    const path = run.about.name.split("/").map(encodeURIComponent).join("/");
    for (;;) {
      const answer = await get(`/inside/runs/${path}?after=${encodeURIComponent(run.cursor)}`).catch((error) => (run.problem = error) && null);
      if (!answer) return; // the others are shown
      run.problem = null;
      run.records = answer.from_start ? answer.records : run.records.concat(answer.records);
      const isDone = answer.cursor === run.cursor || !answer.records.length;
      Object.assign(run, { cursor: answer.cursor, samples: answer.samples });
      if (isDone) return;
    }
  }

  changed() {
    rememberSoon("runs", { x: this.x.select.value, y: this.y.select.value, smooth: this.smoothing.value === "0" ? null : this.smoothing.value, log: this.log.checked ? "1" : null });
    this.draw();
  }

  draw() {
    const all = [...this.runs.values()];
    this.empty.hidden = all.length > 0;
    this.found.hidden = all.length === 0;
    const training = all.filter((run) => run.about.training).length;
    const problems = [
      ...this.linked.filter((name) => !this.runs.has(name)).map((name) => `there is no run ${name} here`),
      ...all.filter((run) => run.problem).map((run) => `${run.about.name} could not be read: ${run.problem.message}`),
    ];
    this.status.textContent = all.length ? [`${number(all.length)} runs, ${number(training)} training`, ...problems].join(" · ") : "";
    const [x, y] = [X[this.x.select.value], Y[this.y.select.value]];
    this.styles = lineStyles(this.runs.keys());
    const shown = all.filter((run) => this.wanted.has(run.about.name));
    // The final measurement is on other tokens than those before: a point of its own, not the curve's end.
    const curves = shown.map((run) => ({ name: run.about.name, style: this.styles.get(run.about.name), points: points(run.records, y.kind, x, y), last: y.kind === "validation" ? points(run.records, "final", x, y).at(-1) : undefined }));
    this.chart.draw(curves, { xName: x.name, yName: y.name, smoothing: Number(this.smoothing.value), isLog: this.log.checked });
    this.drawTable(all);
    this.drawSamples(all);
  }

  drawTable(all) {
    const head = el("tr", {}, ["", "run", "step", "loss", "val loss", "bits/byte", "tokens/s", "minutes", ""].map((name) => el("th", { scope: "col" }, name)));
    fill(this.table, el("thead", {}, head), el("tbody", {}, all.map((run) => this.line(run))));
  }

  line(run) {
    const { name, training } = run.about;
    const newest = (kinds) => run.records.findLast((record) => kinds.includes(record.kind));
    const [train, validation] = [newest(["train"]), newest(["validation", "final"])];
    const box = el("input", { type: "checkbox", checked: this.wanted.has(name), "aria-label": `show ${name}`, "data-key": name, onchange: () => this.toggle(name, box.checked) });
    const style = this.styles.get(name);
    const swatch = shape("svg", { class: "swatch", viewBox: "0 0 30 8" });
    swatch.append(shape("path", { d: "M0 4H30", class: `curve ${style.class}`, "stroke-dasharray": style.dash }));
    const cell = (value, digits, note) => el("td", { class: "figure" }, value === undefined || value === null ? "–" : number(value, digits), note);
    const final = validation?.kind === "final" ? el("span", { class: "dim" }, " final") : null;
    const cells = [cell(train?.step, 0), cell(train?.loss, 3), cell(validation?.loss, 3, final), cell(validation?.bits_per_byte, 3), cell(train?.tokens_per_second, 0), cell(train?.seconds === undefined ? null : train.seconds / 60, 1)];
    return el("tr", {}, el("td", {}, box), el("td", {}, el("label", {}, swatch, " ", name)), cells, el("td", { class: training ? "live" : "dim" }, training ? "● training" : ""));
  }

  toggle(name, isOn) {
    this.linked = [];
    this.wanted[isOn ? "add" : "delete"](name);
    remember("runs", { runs: [...this.wanted].join(",") });
    this.draw();
    this.refresh();
  }

  drawSamples(all) {
    const shown = all.filter((run) => this.wanted.has(run.about.name) && run.samples.length);
    const same = JSON.stringify(shown.map((run) => [run.about.name, run.samples.length, run.samples.at(-1).title]));
    if (same === this.drawn) return;
    this.drawn = same;
    const texts = (run) => run.samples.slice(-6).reverse().map(({ title, text }) => el("div", { class: "sample" }, el("span", { class: "note" }, title), el("p", {}, text.trim())));
    fill(this.samples, shown.length ? shown.map((run) => el("details", { open: true }, el("summary", {}, run.about.name), texts(run))) : el("p", { class: "dim" }, "No samples yet."));
  }
}

function points(records, kind, x, y) {
  return records.filter((record) => record.kind === kind).map((record) => [x.of(record), y.of(record)]).filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b));
}

function choice(title, options, changed) {
  const select = el("select", { "aria-label": title, onchange: changed }, Object.entries(options).map(([key, { name }]) => el("option", { value: key }, name)));
  return { select, label: el("label", {}, `${title} `, select) };
}
