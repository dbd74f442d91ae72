// The address holds the state of the room that is shown: #write?prompt=Once&seed=7. A link shows the
// same. What the other rooms hold, and what was typed a moment ago, is kept in this tab.

/** What translation models show first. */
export const FIRST_SENTENCE = "a man in a blue shirt is standing on a ladder .";

const KEY = "trafo-rooms";
const PAUSE = 300; // milliseconds without typing until the address changes: browsers limit how often it may

// `rooms`: the address of each room. `ahead`: what the address `from` becomes after the pause.
const kept = { rooms: {}, ahead: null, ...JSON.parse(sessionStorage.getItem(KEY) ?? "{}") };
const listeners = new Set();
let shown = null;
let settled = null; // the address that was read or written last; another one means that a link was followed
let timer = 0;

/** Read the address: the room it names, or the one that `choose` makes of that name, and its settings. */
export function arrive(choose) {
  clearTimeout(timer);
  settled = location.hash;
  const hash = kept.ahead?.from === location.hash ? kept.ahead.to : location.hash;
  const [name, query] = hash.slice(1).split("?");
  shown = choose(name);
  if ((name === shown && query) || !kept.rooms[shown]) kept.rooms[shown] = address(shown, name === shown ? query : "");
  if (hash) flush();
  else save();
  return { room: shown, params: paramsOf(shown) };
}

/** Write settings of a room into its address; null removes one. No entry in the history. */
export function remember(room, values) {
  change(room, values);
  if (room === shown) flush();
}

/** As `remember`, for what changes with every key: kept at once, in the address after a pause. */
export function rememberSoon(room, values) {
  change(room, values);
  if (room !== shown) return;
  clearTimeout(timer);
  timer = setTimeout(flush, PAUSE);
}

/** Write into the address what waits for a pause. */
export function flush() {
  clearTimeout(timer);
  kept.ahead = null;
  if (location.hash === settled && settled !== kept.rooms[shown]) {
    history.replaceState(null, "", kept.rooms[shown]);
    settled = location.hash;
  }
  save();
}

/** The address of a room as it was left; one that was never entered takes the model along. */
export const addressOf = (room, model) => kept.rooms[room] ?? address(room, model ? { model } : "");

/** Called when the address of a room changes. */
export function onChange(listener) {
  listeners.add(listener);
}

const paramsOf = (room) => new URLSearchParams(kept.rooms[room]?.split("?")[1]);

function change(room, values) {
  const params = paramsOf(room);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined) params.delete(name);
    else params.set(name, value);
  }
  kept.rooms[room] = address(room, params);
  if (room === shown) kept.ahead = { from: settled, to: kept.rooms[room] };
  save();
}

function address(room, params) {
  const query = new URLSearchParams(params).toString();
  return `#${room}${query ? `?${query}` : ""}`;
}

function save() {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // It is full: the address alone holds what was typed.
  }
  for (const listener of listeners) listener();
}
