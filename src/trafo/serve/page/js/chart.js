// Curves that can be compared: SVG, one colour and one dash pattern for each run, values under the
// pointer.

import { el, hash, number, shape } from "./dom.js";

const [WIDTH, HEIGHT] = [900, 380];
const EDGE = { left: 58, right: 16, top: 12, bottom: 40 };
const MOST_POINTS = 700; // of a curve; more would not be visible
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const COLOURS = 6;
const REACH = 4; // pixels around a point that count as pointing at it

/** Class and dash pattern of each curve, from the names alone: a colour by the name, the next free one
 * if a name before it in the alphabet has that. */
export function lineStyles(names) {
  const styles = new Map();
  const free = new Set(DASHES.flatMap((dash) => Array.from({ length: COLOURS }, (_, colour) => `${colour}:${dash}`)));
  for (const name of [...names].sort()) {
    const own = hash(name) % COLOURS;
    const order = DASHES.flatMap((dash) => Array.from({ length: COLOURS }, (_, i) => `${(own + i) % COLOURS}:${dash}`));
    const style = order.find((each) => free.has(each)) ?? order[0];
    free.delete(style);
    const [colour, dash] = style.split(":");
    styles.set(name, { class: `line-${colour}`, dash });
  }
  return styles;
}

export class Chart {
  constructor() {
    this.node = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", tabindex: "0" });
    this.readout = el("p", { class: "note readout" });
    this.node.addEventListener("pointermove", (event) => this.hover(event));
    this.node.addEventListener("pointerleave", () => this.cross?.setAttribute("visibility", "hidden"));
  }

  /** `curves`: { name, style, points: [[x, y], ...], last: a point apart or undefined }; those without any are left out. */
  draw(curves, { xName, yName, smoothing, isLog }) {
    const shown = curves.filter((curve) => curve.points.length || curve.last).map((curve) => ({ ...curve, smooth: thin(smooth(curve.points, smoothing)) }));
    Object.assign(this, { shown, xName, yName });
    if (!shown.length) {
      this.node.replaceChildren(shape("text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle", class: "tick" }, `no run has measured ${yName} yet`));
      return;
    }
    const all = shown.flatMap((curve) => [...curve.smooth, ...(curve.last ? [curve.last] : [])]);
    this.scales(all, isLog);
    const lines = shown.flatMap((curve) => this.curve(curve, smoothing));
    this.cross = shape("line", { class: "cross", y1: EDGE.top, y2: HEIGHT - EDGE.bottom, visibility: "hidden" });
    this.node.replaceChildren(...this.axes(isLog), ...lines, this.cross);
    this.node.setAttribute("aria-label", `${yName} by ${xName}: ${shown.map((curve) => [curve.name, curve.smooth.at(-1)?.[1].toPrecision(4), curve.last && `final ${curve.last[1].toPrecision(4)}`].filter(Boolean).join(" ")).join(", ")}`);
  }

  scales(points, isLog) {
    const f = isLog ? Math.log10 : (value) => value;
    const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => f(Math.max(y, 1e-9)))];
    const [x0, x1, y0, y1] = [Math.min(0, ...minmax(xs)), minmax(xs)[1], ...minmax(ys)];
    const pad = (y1 - y0 || 1) * 0.06;
    this.range = { x0, x1: x1 > x0 ? x1 : x0 + 1, y0: y0 - pad, y1: y1 + pad };
    this.toX = (x) => EDGE.left + ((x - x0) / (this.range.x1 - x0)) * (WIDTH - EDGE.left - EDGE.right);
    this.toY = (y) => EDGE.top + (1 - (f(Math.max(y, 1e-9)) - this.range.y0) / (this.range.y1 - this.range.y0)) * (HEIGHT - EDGE.top - EDGE.bottom);
  }

  axes(isLog) {
    const { x0, x1, y0, y1 } = this.range;
    const parts = [];
    for (const y of ticks(y0, y1, 6)) {
      const value = isLog ? 10 ** y : y;
      const at = this.toY(value);
      parts.push(shape("line", { class: "grid", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: at, y2: at }));
      parts.push(shape("text", { class: "tick", x: EDGE.left - 8, y: at + 4, "text-anchor": "end" }, label(value)));
    }
    for (const x of ticks(x0, x1, 8)) parts.push(shape("text", { class: "tick", x: this.toX(x), y: HEIGHT - EDGE.bottom + 18, "text-anchor": "middle" }, label(x)));
    parts.push(shape("text", { class: "tick", x: WIDTH - EDGE.right, y: HEIGHT - 5, "text-anchor": "end" }, this.xName));
    return parts;
  }

  curve({ style, points, smooth, last }, smoothing) {
    const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${this.toX(x).toFixed(1)} ${this.toY(y).toFixed(1)}`).join("");
    const dot = ([x, y], kind) => shape("circle", { class: `${kind} ${style.class}`, r: "4", cx: this.toX(x), cy: this.toY(y) });
    const parts = [];
    if (smoothing > 0) parts.push(shape("path", { class: `curve faint ${style.class}`, d: path(thin(points)) }));
    if (smooth.length > 1) parts.push(shape("path", { class: `curve ${style.class}`, "stroke-dasharray": style.dash, d: path(smooth) }));
    if (smooth.length === 1) parts.push(dot(smooth[0], "dot"));
    if (last) parts.push(dot(last, "dot final"));
    return parts;
  }

  hover(event) {
    if (!this.shown?.length) return;
    const box = this.node.getBoundingClientRect();
    const { x0, x1 } = this.range;
    const inside = (((event.clientX - box.left) / box.width) * WIDTH - EDGE.left) / (WIDTH - EDGE.left - EDGE.right);
    const x = x0 + Math.max(0, Math.min(1, inside)) * (x1 - x0);
    this.cross.setAttribute("x1", this.toX(x));
    this.cross.setAttribute("x2", this.toX(x));
    this.cross.setAttribute("visibility", "visible");
    const said = this.shown.flatMap((curve) => this.values(curve, x).map((value) => `${curve.name} ${value}`));
    this.readout.textContent = `${this.xName} ${label(x)}: ${said.join(" · ") || "no run was measured here"}`;
  }

  /** What a run has at x: nothing before its first point and after its last one. */
  values({ smooth, last }, x) {
    const near = ((this.range.x1 - this.range.x0) * REACH) / (WIDTH - EDGE.left - EDGE.right);
    const isWithin = smooth.length && x >= smooth[0][0] - near && x <= smooth.at(-1)[0] + near;
    const isLast = last && Math.abs(last[0] - x) <= near;
    return [isWithin && nearest(smooth, x)[1].toPrecision(4), isLast && `${last[1].toPrecision(4)} (final)`].filter(Boolean);
  }
}

/** Exponential moving average, corrected for its start, as TensorBoard smooths. */
export function smooth(points, weight) {
  if (!weight) return points;
  let [last, debias] = [0, 1];
  return points.map(([x, y]) => {
    last = last * weight + (1 - weight) * y;
    debias *= weight;
    return [x, last / (1 - debias)];
  });
}

/** Fewer points: the mean of each of many stretches; the last point stays. */
function thin(points) {
  if (points.length <= MOST_POINTS) return points;
  const size = points.length / MOST_POINTS;
  const means = Array.from({ length: MOST_POINTS }, (_, i) => {
    const part = points.slice(Math.floor(i * size), Math.floor((i + 1) * size));
    return [0, 1].map((axis) => part.reduce((sum, point) => sum + point[axis], 0) / part.length);
  });
  return [...means, points.at(-1)];
}

function nearest(points, x) {
  return points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
}

function minmax(values) {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
  return [least, most];
}

function ticks(from, to, about) {
  const raw = (to - from) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
  const found = [];
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-9; value += step) found.push(value);
  return found;
}

function label(value) {
  return Math.abs(value) >= 1000 ? number(Math.round(value)) : String(Number(value.toPrecision(3)));
}
