// The address holds the state: #write?prompt=Once&seed=7. A link shows the same.

/** What translation models show first. */
export const FIRST_SENTENCE = "a man in a blue shirt is standing on a ladder .";

const listeners = new Set();

/** The room and its settings, as the address has them. */
export function state() {
  const [room, query = ""] = location.hash.slice(1).split("?");
  return { room: room || "write", params: new URLSearchParams(query) };
}

/** Write settings into the address; null removes one. No entry in the history. */
export function remember(values) {
  const { room, params } = state();
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "") params.delete(name);
    else params.set(name, value);
  }
  history.replaceState(null, "", address(room, params));
  for (const listener of listeners) listener();
}

/** The address of a room with settings. */
export function address(room, params) {
  const query = new URLSearchParams(params).toString();
  return `#${room}${query ? `?${query}` : ""}`;
}

/** Called when `remember` changes the address. */
export function onRemember(listener) {
  listeners.add(listener);
}

/** Ids as short text for the address, and back. */
export const packIds = (ids) => ids.map((id) => id.toString(36)).join(".");
export const unpackIds = (text) => (text ? text.split(".").map((part) => parseInt(part, 36)) : []);
