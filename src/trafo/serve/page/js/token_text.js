// A text whose tokens can be pointed at: tinted by probability, moved through by arrow keys.
// Screen readers hear the text itself, once it is finished.

import { el, fill, percent } from "./dom.js";
import { tint } from "./scale.js";

export class TokenText {
  /** `pressed(index)` when a token is chosen, `left()` on Escape. */
  constructor(pressed, left) {
    this.box = el("div", { class: "tokens-text", role: "listbox", "aria-label": "The text, token by token; arrow keys move, Enter shows alternatives", "aria-orientation": "horizontal" });
    this.heard = el("p", { class: "hidden", "aria-live": "polite" });
    this.node = el("div", {}, this.box, this.heard);
    this.box.addEventListener("click", (event) => {
      const index = [...this.box.children].indexOf(event.target.closest(".token"));
      if (index >= 0) pressed(index);
    });
    this.box.addEventListener("keydown", (event) => this.key(event, pressed, left));
  }

  /** All tokens of the path. */
  draw(branches) {
    this.vocabulary = branches.vocabulary;
    this.decoder = new TextDecoder();
    fill(this.box, branches.path().map((node) => this.span(node, branches)));
    if (this.box.lastChild) this.box.lastChild.tabIndex = 0;
  }

  /** One more token at the end. */
  append(node, branches) {
    this.box.append(this.span(node, branches));
  }

  /** Say what to do when there is no text. */
  empty(message) {
    fill(this.box, el("span", { class: "dim" }, message));
  }

  /** Mark one token, or none. */
  select(index) {
    [...this.box.children].forEach((span, i) => span.setAttribute("aria-selected", String(i === index)));
  }

  /** Move the focus to a token. */
  focus(index) {
    this.box.children[index]?.focus();
  }

  announce(text) {
    this.heard.textContent = text;
  }

  span(node, branches) {
    const text = this.decoder.decode(this.vocabulary.bytes(node.id), { stream: true });
    const isSpecial = this.vocabulary.special.has(node.id);
    const span = el("span", { class: `token${node.given ? " given" : ""}${branches.hasOthers(node) ? " fork" : ""}${isSpecial ? " special" : ""}`, role: "option", tabindex: "-1" });
    // A part of a character has no text of its own yet, but can be pointed at.
    span.textContent = text || "·";
    if (text.includes("\n")) span.classList.add("breaks");
    const known = node.probability !== null && node.probability !== undefined;
    if (known) tint(span, node.probability);
    span.title = `${this.vocabulary.label(node.id)}  id ${node.id}${known ? `  ${percent(node.probability)}` : ""}`;
    span.setAttribute("aria-label", `${text.trim() || this.vocabulary.label(node.id)}${known ? `, ${percent(node.probability)}` : ""}`);
    return span;
  }

  key(event, pressed, left) {
    const tokens = [...this.box.querySelectorAll(".token")];
    const here = tokens.indexOf(document.activeElement);
    const moves = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tokens.length - 1 };
    if (event.key in moves) {
      event.preventDefault();
      tokens[Math.max(0, Math.min(moves[event.key], tokens.length - 1))]?.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (here >= 0) pressed(here);
    } else if (event.key === "Escape") left();
  }
}
