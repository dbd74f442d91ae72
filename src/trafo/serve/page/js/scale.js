// One colour scale for probability: blue is likely, orange is surprising. Never colour alone: each
// place also has the number, or a line whose height shows it.

import { el } from "./dom.js";

const MOST = 10; // bits; rarer than 1 in 1024 looks the same

/** Probability -> 0 (certain) to 1 (ten bits of surprise or more). */
export function surprise(probability) {
  return Math.min(1, Math.max(0, -Math.log2(Math.max(probability, 1e-12)) / MOST));
}

/** Give an element the tint of a probability. */
export function tint(node, probability) {
  node.classList.add("tinted");
  node.style.setProperty("--s", surprise(probability).toFixed(3));
  return node;
}

/** The legend of the scale. */
export function legend() {
  const marks = [1, 0.5, 0.1, 0.01, 0.001].map((p) => tint(el("span", {}, p >= 0.01 ? `${100 * p} %` : "0.1 %"), p));
  return el("span", { class: "legend" }, "probability ", marks);
}
