// The branches of a text as a nested list: press one to see it again.

import { stretches } from "./branches.js";
import { el, fill } from "./dom.js";

const SHOWN = 14; // tokens of a branch

export class Tree {
  constructor(follow) {
    this.follow = follow;
    this.list = el("ul", { class: "tree" });
    this.node = el("details", { class: "branches", open: true, hidden: true }, el("summary", {}, "Branches"), this.list);
  }

  draw(branches, vocabulary) {
    this.node.hidden = !branches.isTree;
    if (!branches.isTree) return;
    const onPath = new Set(branches.path());
    fill(this.list, branches.prompt.children.map((child) => this.item(stretches(child), vocabulary, onPath)));
  }

  item({ nodes, children }, vocabulary, onPath) {
    const text = vocabulary.text(nodes.slice(0, SHOWN).map((node) => node.id));
    const isHere = onPath.has(nodes[0]);
    const button = el("button", { type: "button", class: "branch", "aria-pressed": String(isHere), onclick: () => this.follow(nodes[0]) }, text.trim() || "↵", nodes.length > SHOWN ? "…" : "");
    return el("li", {}, button, children.length ? el("ul", {}, children.map((child) => this.item(child, vocabulary, onPath))) : null);
  }
}
