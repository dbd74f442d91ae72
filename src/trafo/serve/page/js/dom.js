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

/** Replace the children of a node; null is skipped. The focus stays on the same `data-key` or place. */
export function fill(node, ...children) {
  const focused = document.activeElement;
  const held = node !== focused && node.contains(focused) ? focusable(node).indexOf(focused) : -1;
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  if (held >= 0) {
    const all = focusable(node);
    const same = all.find((each) => focused.dataset.key && each.dataset.key === focused.dataset.key);
    (same ?? all.at(Math.min(held, all.length - 1)))?.focus({ preventScroll: true });
  }
  return node;
}

const focusable = (node) => [...node.querySelectorAll("a, button, input, select, textarea, [tabindex]")];

/** Switch a button off or on; if it has the focus, the first of `others` that is on takes it. */
export function disable(button, isOff, ...others) {
  const hadFocus = button === document.activeElement;
  button.disabled = isOff;
  if (isOff && hadFocus) others.find((other) => !other.disabled)?.focus();
}

/** Select an option by its value; the first one if there is none of that value. */
export function select(node, value) {
  node.value = value;
  if (node.selectedIndex < 0) node.selectedIndex = 0;
}

/** Write a value into a field; the cursor stays where it is if the value is there already. */
export function setValue(field, value) {
  if (field.value !== value) field.value = value;
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

/** A number that depends on nothing but the text (FNV-1a, 32 bits). */
export function hash(text) {
  let found = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) found = Math.imul(found ^ text.charCodeAt(i), 0x01000193);
  return found >>> 0;
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
