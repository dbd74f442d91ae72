// A beam search, from left to right: a column for each step, the hypotheses that were kept in the
// order of their scores, each connected to the one it extends. The best one is bold.

import { el, percent, shape } from "./dom.js";
import { surprise } from "./scale.js";

const [COLUMN, ROW, TOP] = [96, 34, 16];

export class Beam {
  constructor() {
    this.node = el("div", { class: "beam-scroll", tabindex: "0", role: "region", "aria-label": "Beam search as a tree, scrolls" });
  }

  show({ nodes, translations }, vocabulary) {
    const depth = [];
    nodes.forEach((node, index) => (depth[index] = node.parent < 0 ? 0 : depth[node.parent] + 1));
    const [counts, at] = [[], []];
    const byScore = [...nodes.keys()].sort((a, b) => depth[a] - depth[b] || nodes[b].logprob - nodes[a].logprob);
    for (const index of byScore) {
      const rank = (counts[depth[index]] = (counts[depth[index]] ?? 0) + 1);
      at[index] = { x: 8 + (depth[index] + 1) * COLUMN, y: TOP + (rank - 1) * ROW };
    }
    const winner = this.way(nodes, translations[0].ids);
    const root = { x: 8, y: TOP };
    const height = TOP + Math.max(...counts) * ROW;
    const width = 8 + (counts.length + 1) * COLUMN;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width: width, height: height, class: "beam", role: "img", "aria-label": `Beam search of ${counts.length} steps; best: ${translations[0].text}` });
    const lines = nodes.map((node, index) => edge(node.parent < 0 ? root : at[node.parent], at[index], winner.has(index)));
    const boxes = nodes.map((node, index) => this.box(node, node.parent < 0 ? 0 : nodes[node.parent].logprob, at[index], winner.has(index), vocabulary));
    svg.append(...lines, shape("circle", { cx: "10", cy: TOP, r: "4", class: "beam-root" }), ...boxes);
    this.node.replaceChildren(svg);
  }

  /** The places of the nodes on the way to some ids. */
  way(nodes, ids) {
    const found = new Set();
    let parent = -1;
    for (const id of ids) {
      const next = nodes.findIndex((node) => node.parent === parent && node.id === id);
      if (next < 0) break;
      found.add(next);
      parent = next;
    }
    return found;
  }

  box(node, before, { x, y }, wins, vocabulary) {
    const probability = Math.exp(node.logprob - before);
    const label = node.ended ? "(end)" : vocabulary.label(node.id);
    const group = shape("g", { class: `beam-node${wins ? " wins" : ""}`, transform: `translate(${x} ${y})` });
    const rect = shape("rect", { x: "-2", y: "-13", width: COLUMN - 26, height: "28", rx: "4" });
    rect.style.setProperty("--s", surprise(probability).toFixed(3));
    group.append(rect, shape("text", { y: "0" }, label.length > 9 ? `${label.slice(0, 8)}…` : label), shape("text", { y: "11", class: "small" }, `${percent(probability)} · ${node.logprob.toFixed(2)}`));
    group.append(shape("title", {}, `${label}: ${percent(probability)} after its parent; log-probability ${node.logprob.toFixed(3)}, score ${node.score.toFixed(3)}`));
    return group;
  }
}

function edge(from, to, wins) {
  const [x0, x1] = [from.x + (from.x === 8 ? 4 : COLUMN - 28), to.x - 2];
  const middle = (x0 + x1) / 2;
  return shape("path", { class: wins ? "beam-edge wins" : "beam-edge", d: `M${x0} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${x1} ${to.y}` });
}
