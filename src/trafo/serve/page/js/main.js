// The frame: navigation, model, theme. Each room is a module, loaded when it is first entered.

import { get } from "./api.js";
import { el, fill, number } from "./dom.js";
import { address, onRemember, remember, state } from "./state.js";

const ANY = ["language", "translation"];
const ROOMS = {
  write: { title: "Write", kinds: ["language"], load: () => import("./rooms/write.js") },
  tokens: { title: "Tokens", kinds: ANY, load: () => import("./rooms/tokens.js") },
  inside: { title: "Inside", kinds: ANY, load: () => import("./rooms/inside.js") },
  runs: { title: "Runs", kinds: [], load: () => import("./rooms/runs.js") },
  translate: { title: "Translate", kinds: ["translation"], load: () => import("./rooms/translate.js") },
};

const main = document.getElementById("main");
const picker = document.getElementById("model");
const visited = new Map(); // room -> { node, room }
let cards = [];
let here = null;

start();

async function start() {
  setTheme(localStorage.getItem("trafo-theme"));
  document.getElementById("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  picker.addEventListener("change", () => remember({ model: picker.value }) || enter());
  window.addEventListener("hashchange", enter);
  document.addEventListener("server-back", () => (cards.length ? enter() : loadModels()));
  document.addEventListener("answered", refreshFacts);
  document.addEventListener("keydown", slash);
  onRemember(drawNav);
  drawNav();
  await loadModels();
}

async function loadModels() {
  try {
    cards = (await get("/v1/models")).data;
  } catch (error) {
    fill(main, el("p", { class: "problem", role: "alert" }, `The models could not be listed: ${error.message}.`));
    return;
  }
  await enter();
}

/** Show the room of the address. */
async function enter() {
  const { room: name, params } = state();
  const room = ROOMS[name] ? name : "write";
  const card = pick(room, params.get("model"));
  drawNav();
  drawModel(room, card);
  document.title = `${ROOMS[room].title} · trafo`;
  if (here && here.name !== room) here.room.leave?.();
  if (ROOMS[room].kinds.length && !card) return fill(main, empty(room));
  if (!visited.has(room)) {
    fill(main, el("p", { class: "loading" }, "Loading…"));
    const module = await ROOMS[room].load();
    const node = el("section", { class: `room ${room}`, "aria-label": ROOMS[room].title });
    visited.set(room, { name: room, node, room: module.make(node) });
  }
  here = visited.get(room);
  if (main.firstChild !== here.node) fill(main, here.node);
  await here.room.enter({ model: card?.id, card, cards, params });
}

/** The model of the address if this room can use it, otherwise the first that it can. */
function pick(room, wanted) {
  const usable = cards.filter((card) => ROOMS[room].kinds.includes(card.kind));
  return usable.find((card) => card.id === wanted) ?? usable[0];
}

function drawNav() {
  const { room, params } = state();
  const model = params.get("model");
  const links = Object.entries(ROOMS).map(([name, { title }]) => {
    const href = name === room ? location.hash : address(name, model ? { model } : {});
    return el("a", { href: visited.has(name) && name !== room ? visited.get(name).href ?? href : href, "aria-current": name === room ? "page" : null }, title);
  });
  if (visited.has(room)) visited.get(room).href = location.hash;
  fill(document.getElementById("nav"), links);
}

function drawModel(room, card) {
  const usable = cards.filter((each) => ROOMS[room].kinds.includes(each.kind));
  fill(picker, usable.map((each) => el("option", { value: each.id, selected: each === card }, each.id)));
  picker.parentElement.hidden = usable.length === 0;
  const facts = card ? [card.step === null || card.step === undefined ? null : `step ${number(card.step)}`, card.dtype, card.vocab_size && `${number(card.vocab_size)} tokens`] : [];
  document.getElementById("facts").textContent = facts.filter(Boolean).join(" · ");
}

/** A model that is followed while it trains may have a newer checkpoint by now. */
async function refreshFacts() {
  const { data } = await get("/v1/models").catch(() => ({ data: cards }));
  cards = data;
  const { room, params } = state();
  drawModel(room, pick(room, params.get("model")));
}

function empty(room) {
  const kind = ROOMS[room].kinds[0] === "translation" ? "translation model" : "language model";
  return el("p", { class: "empty" }, `No ${kind} is served. Start one with `, el("code", {}, "trafo serve RUN"), ".");
}

function isDark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  if (!theme) return;
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("trafo-theme", theme);
  document.dispatchEvent(new CustomEvent("theme"));
}

/** `/` goes to the room's text field. */
function slash(event) {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  here?.node.querySelector("textarea")?.focus();
}
