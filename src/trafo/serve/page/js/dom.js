// Small helpers to make elements. No inline styles: the page's policy forbids them in markup.

/** An element: `el("button", { class: "primary", onclick: go, "aria-label": "Go" }, "Go")`. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  return fill(node, children);
}

/** Replace the children of a node; null is skipped. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** An SVG element; empty attributes are left out. */
export function shape(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== "") node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Show a text in a node; without one, hide the node. */
export function notice(node, text = "") {
  node.textContent = text;
  node.hidden = !text;
}

/** 0.4137 -> "41 %"; small ones keep one digit. */
export function percent(p) {
  if (p >= 0.0995) return `${(100 * p).toFixed(0)} %`;
  if (p >= 0.001) return `${(100 * p).toFixed(1)} %`;
  return p > 0 ? "<0.1 %" : "0 %";
}

/** 12345 -> "12,345". */
export function number(n, digits = 0) {
  return n.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** 1 -> "1 merge", 2 -> "2 merges". */
export function plural(n, word) {
  return `${number(n)} ${word}${n === 1 ? "" : "s"}`;
}

/** Call a function when it has not been called again for a while. */
export function debounced(wait, call) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...args), wait);
  };
}

/** Arrow keys move the focus through the members of a group. */
export function arrows(group, selector) {
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const ends = { Home: 0, End: -1 }[event.key];
    if (step === undefined && ends === undefined) return;
    const members = [...group.querySelectorAll(selector)];
    const here = members.indexOf(document.activeElement);
    if (here < 0) return;
    event.preventDefault();
    const next = ends === undefined ? here + step : ends;
    members.at(Math.max(-1, Math.min(next, members.length - 1)))?.focus();
  });
}
