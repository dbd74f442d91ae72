// The bytes of every token, fetched once for each model; all else is in ids.

import { get } from "./api.js";
import { hash } from "./dom.js";

const known = new Map();
// A server that was started again may serve another model under the same name.
document.addEventListener("new-models", () => known.clear());

/** The vocabulary of a model; a translation model has two sides. A signal ends the wait for it. */
export function vocabularyOf(model, signal, side = "source") {
  const path = `/inside/vocabulary?model=${encodeURIComponent(model)}&side=${side}`;
  if (!known.has(path)) {
    const loading = get(path).then((content) => new Vocabulary(content));
    loading.catch(() => known.delete(path));
    known.set(path, loading);
  }
  const stopped = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  return Promise.race([known.get(path), stopped]);
}

class Vocabulary {
  constructor({ tokens, special, ends }) {
    this.tokens = tokens;
    this.special = new Set(special);
    this.ends = new Set(ends);
    this.fingerprint = hash(tokens.join("\n")).toString(36); // the same tokens, the same fingerprint
  }

  get size() {
    return this.tokens.length;
  }

  /** The bytes of a token. */
  bytes(id) {
    return latin1(this.tokens[id] ?? "");
  }

  /** For a list or a cell: whitespace made visible, parts of characters as hex. */
  label(id) {
    return visible(this.bytes(id));
  }

  /** The labels of a sentence's tokens; its end is "(end)". */
  sentence(ids) {
    return ids.map((id) => (this.special.has(id) ? "(end)" : this.label(id)));
  }

  /** Ids -> what each adds to the text; a character is shown with the token that completes it. */
  texts(ids) {
    const decoder = new TextDecoder();
    return ids.map((id) => decoder.decode(this.bytes(id), { stream: true }));
  }

  /** Ids -> the text. */
  text(ids) {
    return this.texts(ids).join("");
  }
}

/** A string in which character i is byte i -> bytes. */
export function latin1(text) {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

const MARKS = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "\u200b": "∅", "\u200d": "⁀", "\ufeff": "∅" };

/** Bytes -> text in which nothing is invisible. */
export function visible(bytes) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return hex(bytes, "‹", "›");
  }
  return text.replace(/[\s\u200b\u200d\ufeff\u0000-\u001f\u007f]/gu, (c) => MARKS[c] ?? hex(new TextEncoder().encode(c), "‹", "›"));
}

/** Bytes as hexadecimal. */
export function hex(bytes, left = "", right = "") {
  return left + [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ") + right;
}
