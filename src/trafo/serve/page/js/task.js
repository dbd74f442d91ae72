// What a room is busy with, one job at a time: it says so, it can be stopped, and a newer job takes
// its place.

import { disable, el, notice } from "./dom.js";

export class Task {
  /** `failed` begins the message of an error; work shorter than `delay` milliseconds is not mentioned. */
  constructor(failed, delay = 0) {
    Object.assign(this, { failed, delay, current: null, next: [] }); // next: who takes the focus from Stop
    this.status = el("p", { class: "status", role: "status" });
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.stopButton = el("button", { type: "button", disabled: true, onclick: () => this.stop() }, "Stop");
  }

  get isRunning() {
    return this.current !== null;
  }

  stop() {
    this.current?.abort();
  }

  /** Run `job(signal)`, which returns the status at the end; false if a newer job took its place. */
  async run(label, job) {
    this.stop();
    const current = (this.current = new AbortController());
    const begin = () => {
      this.status.textContent = label;
      disable(this.stopButton, false);
    };
    const timer = this.delay ? setTimeout(begin, this.delay) : begin();
    let [status, problem] = ["", ""];
    try {
      status = (await job(current.signal)) ?? "";
    } catch (error) {
      if (error.name === "AbortError") status = "Stopped.";
      else problem = `${this.failed}: ${error.message}.${error.retryAfter ? ` Try again in ${error.retryAfter} s.` : ""}`;
    }
    clearTimeout(timer);
    if (this.current !== current) return false;
    this.current = null;
    this.status.textContent = status;
    notice(this.problem, problem);
    disable(this.stopButton, true, ...this.next);
    return true;
  }
}
