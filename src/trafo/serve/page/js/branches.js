// What was written, and its alternatives: a tree of tokens. One path through it is shown.

import { el, fill } from "./dom.js";

const SHOWN = 14; // tokens of a branch in the list

export class Branches {
  /** Begin with the tokens of a prompt. */
  constructor(promptIds) {
    this.root = { id: null, parent: null, children: [] };
    this.leaf = this.root;
    for (const id of promptIds) this.add(id, null);
    this.promptLength = promptIds.length;
    this.prompt = this.leaf;
  }

  /** One more token at the end of the path. */
  add(id, probability) {
    const known = this.leaf.children.find((child) => child.id === id);
    if (known) {
      this.leaf = known;
      return known;
    }
    const node = { id, probability, parent: this.leaf, children: [] };
    this.leaf.children.push(node);
    this.leaf.seen = node; // the child that was last on the path
    this.leaf = node;
    return node;
  }

  /** The nodes from the first token to the end of the path. */
  path() {
    const nodes = [];
    for (let node = this.leaf; node.parent; node = node.parent) nodes.push(node);
    return nodes.reverse();
  }

  ids() {
    return this.path().map((node) => node.id);
  }

  /** Put another token in the place of a node; the path ends there. Its old branch stays. */
  replace(node, id, probability) {
    this.leaf = node.parent;
    return this.add(id, probability);
  }

  /** Show the branch of a node, down to where it was last written. */
  follow(node) {
    node.parent.seen = node;
    this.leaf = node;
    while (this.leaf.children.length) this.leaf = this.leaf.seen ?? this.leaf.children[0];
  }

  /** Whether anything else was written in the place of a node. */
  hasOthers(node) {
    return node.parent.children.length > 1;
  }

  /** Whether there is more than one path. */
  get isTree() {
    const forks = (node) => node.children.length > 1 || node.children.some(forks);
    return forks(this.prompt);
  }
}

/** Stretches of tokens without a fork: { nodes, children } from a node on. */
function stretches(node) {
  const nodes = [node];
  while (nodes.at(-1).children.length === 1) nodes.push(nodes.at(-1).children[0]);
  return { nodes, children: nodes.at(-1).children.map(stretches) };
}

/** The branches as a nested list: press one to show it. */
export class BranchList {
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
