// Requests to this server and nowhere else. Asks for an API key when one is needed, and tries again
// while the server does not answer.

const KEY = "trafo-key";
const POLL = 2000; // milliseconds between attempts to reach the server

/** A request that the server refused, with its message. */
export class Refused extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export const get = async (path, signal) => (await send(path, { signal })).json();
export const post = async (path, body, signal) => (await send(path, { body, signal })).json();

/** Bytes and the headers that describe them. */
export async function bytes(path, body, signal) {
  const answer = await send(path, { body, signal });
  return { buffer: await answer.arrayBuffer(), headers: answer.headers };
}

/** The events of a stream, parsed; ends at [DONE]. `id` names the request for `placeOf`. */
export async function* events(path, body, signal, id) {
  const answer = await send(path, { body, signal, id });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the server ended the answer too early");
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: ?/, "");
      if (data === "[DONE]") return;
      if (!part.startsWith("data:")) continue;
      const content = JSON.parse(data);
      if (content.error) throw new Refused(0, content.error.message);
      yield content;
    }
  }
}

/** Place in the queue of a request that was sent with this id; 0 if it runs, null if unknown. */
export const placeOf = async (id) => (await get(`/inside/place?id=${encodeURIComponent(id)}`)).place;

async function send(path, { body, signal, id }) {
  for (let wrongKey = false; ; wrongKey = true) {
    const answer = await attempt(path, body, signal, id);
    if (answer.ok) return answer;
    if (answer.status === 401) {
      await askForKey(wrongKey || sessionStorage.getItem(KEY) !== null);
      continue;
    }
    const content = await answer.json().catch(() => null);
    const message = content?.error?.message ?? `the server answered ${answer.status}`;
    throw new Refused(answer.status, message, answer.headers.get("Retry-After"));
  }
}

async function attempt(path, body, signal, id) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (id) headers["X-Request-ID"] = id;
  const method = body === undefined ? "GET" : "POST";
  try {
    return await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    watchServer();
    throw new Error("the server does not answer");
  }
}

let asking = null;

/** One dialog, however many requests wait for the key. */
function askForKey(refused) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("key-dialog");
    const problem = document.getElementById("key-problem");
    const field = document.getElementById("key");
    problem.textContent = "The server refused that key.";
    problem.hidden = !refused;
    field.value = "";
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    const use = () => {
      sessionStorage.setItem(KEY, field.value);
      asking = null;
      resolve();
    };
    dialog.addEventListener("close", use, { once: true });
    dialog.showModal();
    field.focus();
  });
  return asking;
}

let watching = false;

/** Says that the server does not answer, and tries until it does. */
async function watchServer() {
  if (watching) return;
  watching = true;
  const banner = document.getElementById("banner");
  banner.textContent = "The server does not answer. Trying again… Nothing you typed is lost.";
  banner.hidden = false;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, POLL));
    const answer = await fetch("/health").catch(() => null);
    if (answer?.ok) break;
  }
  banner.hidden = true;
  watching = false;
  document.dispatchEvent(new CustomEvent("server-back"));
}
