// The frame: navigation, model, theme. Each room is a module, made when it is first entered.

import { get } from "./api.js";
import { el, fill, number } from "./dom.js";
import * as inside from "./rooms/inside.js";
import * as runs from "./rooms/runs.js";
import * as tokens from "./rooms/tokens.js";
import * as translate from "./rooms/translate.js";
import * as write from "./rooms/write.js";
import { addressOf, arrive, flush, onChange, remember } from "./state.js";

const ANY = ["language", "translation"];
const ROOMS = {
  write: { title: "Write", kinds: ["language"], make: write.make },
  tokens: { title: "Tokens", kinds: ANY, make: tokens.make },
  inside: { title: "Inside", kinds: ANY, make: inside.make },
  runs: { title: "Runs", kinds: [], make: runs.make },
  translate: { title: "Translate", kinds: ["translation"], make: translate.make },
};
const POLL = 2000; // milliseconds between looks for a newer checkpoint

const main = document.getElementById("main");
const picker = document.getElementById("model");
const visited = new Map(); // room -> { node, room }
let cards = [];
let here = null; // { name, card }

start();

async function start() {
  setTheme(localStorage.getItem("trafo-theme"));
  document.getElementById("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  picker.addEventListener("change", chooseModel);
  window.addEventListener("hashchange", enter);
  document.addEventListener("click", (event) => event.target.closest("a") && flush(), { capture: true });
  document.addEventListener("server-back", loadModels);
  document.addEventListener("answered", refreshModels);
  document.addEventListener("visibilitychange", refreshModels);
  setInterval(refreshModels, POLL);
  document.addEventListener("keydown", slash);
  fill(document.getElementById("nav"), Object.entries(ROOMS).map(([name, { title }]) => el("a", { "data-room": name }, title)));
  onChange(drawNav);
  drawNav();
  await loadModels();
}

async function loadModels() {
  const data = await get("/v1/models").then((answer) => answer.data, (error) => {
    if (!cards.length) fill(main, el("p", { class: "problem", role: "alert" }, `The models could not be listed: ${error.message}.`));
  });
  if (data) take(data);
}

/** A model that is followed while it trains may have a newer checkpoint by now. */
async function refreshModels() {
  if (document.hidden || !cards.length || refreshModels.isBusy) return;
  refreshModels.isBusy = true;
  const { data } = await get("/v1/models").catch(() => ({ data: cards }));
  refreshModels.isBusy = false;
  if (JSON.stringify(data) !== JSON.stringify(cards)) take(data);
}

function take(data) {
  const isNew = data.some(({ id, created }) => !cards.some((card) => card.id === id && card.created === created));
  cards = data;
  if (isNew) document.dispatchEvent(new CustomEvent("new-models")); // the server was started again
  enter();
}

/** The model of the list, in every room that can use it. */
function chooseModel() {
  const { kind } = cards.find((card) => card.id === picker.value);
  for (const [room, { kinds }] of Object.entries(ROOMS)) if (kinds.includes(kind)) remember(room, { model: picker.value });
  enter();
}

/** Show the room of the address; without one, the first that the models can be used in. A name that is
 * no room's (the link to the content has one) changes nothing. */
function enter() {
  if (!cards.length) return;
  const first = cards.some((card) => card.kind === "language") ? "write" : "translate";
  const { room, params } = arrive((name) => (Object.hasOwn(ROOMS, name) ? name : (name && here?.name) || first));
  const card = pick(room, params.get("model"));
  if (here && here.name !== room) visited.get(here.name)?.room.leave?.();
  here = { name: room, card };
  drawNav();
  drawModel();
  document.title = `${ROOMS[room].title} · trafo`;
  if (ROOMS[room].kinds.length && !card) return fill(main, empty(room));
  if (!visited.has(room)) {
    const node = el("section", { class: `room ${room}`, "aria-label": ROOMS[room].title });
    visited.set(room, { node, room: ROOMS[room].make(node) });
  }
  const { node, room: shown } = visited.get(room);
  if (main.firstChild !== node) main.replaceChildren(node);
  shown.enter({ model: card?.id, card, cards, params });
}

/** The model of the address if this room can use it, otherwise the first that it can. */
function pick(room, wanted) {
  const usable = cards.filter((card) => ROOMS[room].kinds.includes(card.kind));
  return usable.find((card) => card.id === wanted) ?? usable[0];
}

function drawNav() {
  for (const link of document.getElementById("nav").children) {
    const { room } = link.dataset;
    link.href = addressOf(room, here?.card?.id);
    if (room === here?.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function drawModel() {
  const { name, card } = here;
  const usable = cards.filter((each) => ROOMS[name].kinds.includes(each.kind));
  fill(picker, usable.map((each) => el("option", { value: each.id, selected: each === card }, each.id)));
  picker.parentElement.hidden = usable.length === 0;
  const facts = card ? [card.step === null || card.step === undefined ? null : `step ${number(card.step)}`, card.dtype, card.vocab_size && `${number(card.vocab_size)} tokens`] : [];
  document.getElementById("facts").textContent = facts.filter(Boolean).join(" · ");
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
  visited.get(here?.name)?.node.querySelector("textarea")?.focus();
}
