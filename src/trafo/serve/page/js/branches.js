// What was written, and its alternatives: a tree of tokens. One path through it is shown.

import { el, fill } from "./dom.js";

const SHOWN = 14; // tokens of a branch in the list

export class Branches {
  /** Ids mean something only together with the vocabulary they come from. */
  constructor(vocabulary) {
    this.vocabulary = vocabulary;
    this.root = { id: null, parent: null, children: [] };
    this.leaf = this.root;
  }

  /** Begin a path with the tokens of a prompt; what was written before stays. */
  start(promptIds) {
    this.leaf = this.root;
    for (const id of promptIds) this.add(id).given = true;
  }

  /** One more token at the end of the path; its probability is null if it has none. */
  add(id, probability) {
    let node = this.leaf.children.find((child) => child.id === id);
    if (!node) {
      node = { id, parent: this.leaf, children: [], given: false };
      this.leaf.children.push(node);
    }
    node.probability ??= probability;
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

  /** How many tokens of the path are the prompt's. */
  get promptLength() {
    return this.path().filter((node) => node.given).length;
  }

  /** The texts of the prompt and of what follows it on the path, without special tokens. */
  texts() {
    const nodes = this.path().filter((node) => !this.vocabulary.special.has(node.id));
    return [true, false].map((given) => this.vocabulary.text(nodes.filter((node) => node.given === given).map((node) => node.id)));
  }

  /** Show the branch of a node, down to where it was last written. */
  follow(node) {
    for (let each = node; each.parent; each = each.parent) each.parent.seen = each;
    this.leaf = node;
    while (this.leaf.children.length) this.leaf = next(this.leaf);
  }

  /** Whether anything else was written in the place of a node. */
  hasOthers(node) {
    return node.parent.children.length > 1;
  }

  /** Where the paths part for the first time; a leaf if there is only one. */
  get fork() {
    let node = this.root;
    while (node.children.length === 1) node = node.children[0];
    return node;
  }

  /** Another model will give other probabilities. */
  forgetProbabilities() {
    const nodes = [this.root];
    for (const node of nodes) {
      delete node.probability;
      nodes.push(...node.children);
    }
  }

  /** For the address. `text`: the path in base 36, then each other branch after the number of the
   * node that it leaves and the number of its tokens that are a prompt's. `v` is the vocabulary. */
  pack() {
    const numbers = new Map([[this.root, 0]]);
    const parts = [];
    const starts = this.root.children.length ? [next(this.root)] : [];
    for (const start of starts) {
      const nodes = [];
      for (let node = start; node; node = next(node)) nodes.push(node);
      const about = [numbers.get(start.parent), nodes.filter((node) => node.given).length];
      for (const node of nodes) numbers.set(node, numbers.size);
      parts.push([...(start === starts[0] ? [] : about), ...nodes.map((node) => node.id)].map((n) => n.toString(36)).join("."));
      for (const node of [start.parent, ...nodes]) starts.push(...node.children.filter((child) => !numbers.has(child) && !starts.includes(child)));
    }
    return { text: parts.join("_") || null, from: parts.length ? this.promptLength : null, v: this.vocabulary.fingerprint };
  }

  /** The tree of an address; null if it was written in another vocabulary, or if it is damaged. */
  static unpack(params, vocabulary) {
    if ((params.get("v") ?? vocabulary.fingerprint) !== vocabulary.fingerprint) return null;
    const branches = new Branches(vocabulary);
    const nodes = [branches.root];
    for (const [index, part] of (params.get("text") ?? "").split("_").entries()) {
      const numbers = part.split(".").map((digits) => parseInt(digits, 36));
      const [parent, given] = index ? numbers.splice(0, 2) : [0, Number(params.get("from")) || 0];
      if (!nodes[parent] || !numbers.length || !numbers.every((id) => id >= 0 && id < vocabulary.size)) return null;
      branches.leaf = nodes[parent];
      numbers.forEach((id, place) => nodes.push(branches.add(id)) && (branches.leaf.given = place < given));
    }
    for (const node of nodes) delete node.seen; // the first child is the one that was last on the path
    branches.follow(nodes[1]);
    return branches;
  }
}

/** The child that was last on the path. */
const next = (node) => node.seen ?? node.children[0];

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

  draw(branches) {
    const { fork, vocabulary } = branches;
    this.node.hidden = fork.children.length < 2;
    const onPath = new Set(branches.path());
    fill(this.list, this.node.hidden ? [] : fork.children.map((child) => this.item(stretches(child), vocabulary, onPath)));
  }

  item({ nodes, children }, vocabulary, onPath) {
    const text = vocabulary.text(nodes.slice(0, SHOWN).map((node) => node.id));
    const isHere = onPath.has(nodes[0]);
    const button = el("button", { type: "button", class: "branch", "aria-pressed": String(isHere), onclick: () => this.follow(nodes[0]) }, text.trim() || "↵", nodes.length > SHOWN ? "…" : "");
    return el("li", {}, button, children.length ? el("ul", {}, children.map((child) => this.item(child, vocabulary, onPath))) : null);
  }
}
