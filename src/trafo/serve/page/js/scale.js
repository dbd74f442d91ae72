// One scale for probability everywhere: blue is sure, orange is surprising. Never colour alone:
// each place also has the number, or a line whose height says the same.

const MOST = 10; // bits; rarer than 1 in 1024 looks the same

/** Probability -> 0 (certain) to 1 (ten bits of surprise or more). */
export function surprise(probability) {
  return Math.min(1, Math.max(0, -Math.log2(Math.max(probability, 1e-12)) / MOST));
}

/** Give an element the tint of a probability. */
export function tint(node, probability) {
  node.classList.add("tinted");
  node.style.setProperty("--s", surprise(probability).toFixed(3));
}

/** The legend of the scale. */
export function legend(document) {
  const node = document.createElement("span");
  node.className = "legend";
  const marks = [1, 0.5, 0.1, 0.01, 0.001].map((p) => {
    const mark = document.createElement("span");
    mark.textContent = p >= 0.01 ? `${100 * p} %` : "0.1 %";
    tint(mark, p);
    return mark;
  });
  node.append("probability ", ...marks);
  return node;
}
