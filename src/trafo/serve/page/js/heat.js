// Attention weights as pictures: paper is 0, the accent colour is 1, on a square-root scale, so
// that weights of a few percent can be seen.

import { bytes } from "./api.js";

const FULL = 65535;

/** One layer's weights, (heads, rows, columns), from one of the two attention endpoints. */
export async function attentionLayer(path, body, signal) {
  const { buffer, headers } = await bytes(path, body, signal);
  const [heads, rows, columns] = headers.get("X-Shape").split(",").map(Number);
  return { weights: new Uint16Array(buffer), heads, rows, columns, layers: Number(headers.get("X-Layers")) };
}

/** A table of 256 colours from the page's own paper and accent. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const [paper, accent] = ["--paper", "--cool"].map((name) => channels(style.getPropertyValue(name)));
  const table = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const [r, g, b] = paper.map((from, channel) => Math.round(from + (accent[channel] - from) * (i / 255)));
    table[i] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return table;
}

/** "rgb(1, 2, 3)" as numbers. */
const channels = (colour) => colour.match(/\d+/g).map(Number);

/** One head's weights (rows x columns) as a canvas with a pixel for each. */
export function picture(weights, rows, columns, table) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = table[Math.round(255 * Math.sqrt(weights[i] / FULL))];
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Draw a picture over the whole of a canvas, without smoothing. */
export function stretch(image, canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = image.width > canvas.width;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
}

/** A weight as a number from 0 to 1. */
export const weight = (integer) => integer / FULL;
