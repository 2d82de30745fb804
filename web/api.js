// Asks the node. The ticket is kept in this variable and nowhere else.

let ticket = null;

/** Nothing has come for so long: of an answer, and of a stream of events, in which the node sends something every 15 s. */
const ANSWER_MS = 30_000, STREAM_MS = 35_000;

/** Whether somebody has logged in. */
export const isLoggedIn = () => ticket !== null;

/** Uses a ticket from now on; null: none. */
export function useTicket(text) {
  ticket = text;
}

/** The node has refused a request. */
export class Refused extends Error {
  constructor(status, body) {
    super(body?.error ?? `the node answered ${status}`);
    this.status = status;
    this.code = body?.code ?? "";
    this.body = body;
  }
}

/** The node has not answered; `silent`: for how many milliseconds nothing has come. */
export class Unanswered extends Error {
  constructor(silent, cause) {
    super(silent ? `the node has not answered for ${silent / 1000} s` : `there is no connection to the node (${cause.message})`, { cause });
    this.silent = silent;
  }
}

/** What to send for a ticket. */
const authorization = (ticket) => (ticket === null ? {} : { Authorization: `Bearer ${ticket}` });

/** Whether a text can be sent as a ticket, or as a token. */
export const isSendable = (text) => /^[\x21-\x7e]+$/.test(text);

/** Whether the node takes a ticket: it lets its user in, or knows who it is and lets them see nothing there. */
export async function tryTicket(text) {
  try {
    await get("/v1/kv/?children&limit=1", { headers: authorization(text) });
  } catch (error) {
    if (!(error instanceof Refused && error.status === 403)) throw error;
  }
}

/** What to do where somebody must be logged in. */
const LOG_IN = { GET: "Log in to see this." };
LOG_IN.PUT = LOG_IN.DELETE = "To change something, log in with this node's token (the file of --http-token-file), or with your ticket.";

async function ask(path, options) {
  const headers = { ...authorization(ticket), ...options.headers };
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  const text = await answer.text();
  let body = null;
  try { body = JSON.parse(text); } catch { /* It is no JSON: the status says enough. */ }
  const refused = new Refused(answer.status, body);
  // The node's words are for programs.
  if (refused.code === "auth_required") refused.message = LOG_IN[options.method ?? "GET"] ?? refused.message;
  throw refused;
}

/** Asks; `begins(answer)` gets the answer's head, and `comes(part)` each part of its text. It ends when `signal` says so, or
 * once nothing has come for so long: a node that hangs, or is cut off, closes no connection. */
async function hear(path, { signal, ...options }, silentMs, begins, comes) {
  const quit = new AbortController(), end = () => quit.abort();
  let timer = 0, silent = 0;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => { silent = silentMs; end(); }, silentMs);
  };
  signal?.addEventListener("abort", end);
  wait();
  try {
    const answer = await ask(path, { ...options, signal: quit.signal });
    begins(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      wait();
      const { done, value } = await reader.read();
      if (done) return;
      comes(value);
    }
  } catch (error) {
    // Browsers tell a failed connection by a TypeError.
    throw silent || error instanceof TypeError ? new Unanswered(silent, error) : error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", end);
    end();
  }
}

/** The text that is answered, and the header fields. */
export async function get(path, options = {}) {
  let text = "", headers;
  await hear(path, options, ANSWER_MS, (answer) => { headers = answer.headers; }, (part) => { text += part; });
  return { text, headers };
}

/** The label of the version that is answered. Proxies that compress an answer mark it as weak; but it names one version,
 * however that is encoded, and a change compares it as it was. */
export const labelOf = (headers) => (headers.get("etag") ?? "").replace(/^W\//, "");

/** The JSON that is answered. */
export async function json(path, options) {
  return JSON.parse((await get(path, options)).text);
}

/** The lines of JSON that are answered, each as text. */
export async function lines(path) {
  return (await get(path)).text.split("\n").filter(Boolean);
}

/** A value within an answer as JSON text, its numbers as they were sent: 1.0 is another value than 1. */
export function exact(text, ...keys) {
  const keep = (_, value, context) => (typeof value === "number" && JSON.rawJSON && context?.source ? JSON.rawJSON(context.source) : value);
  const value = keys.reduce((value, key) => value?.[key], JSON.parse(text, keep));
  return value === undefined ? null : JSON.stringify(value);
}

/** Where an entry is, by the segments of its path. */
export function at(path) {
  return "/v1/kv/" + path.map(encodeURIComponent).join("/");
}

/** 32 hexadecimal digits that no other change has. */
const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The last change that got no answer, and its write id. */
let open = null;

/** Makes a change. One that got no answer may be made: asked again as it was, it is the same one for the node, and counts once. */
async function change(path, options) {
  const what = JSON.stringify([path, options]);
  const id = open?.what === what ? open.id : newId();
  const mine = { what, id };
  open = mine;
  try {
    const answer = await get(at(path), { ...options, headers: { ...options.headers, "Distkv-Wid": id } });
    if (open === mine) open = null;
    return answer;
  } catch (error) {
    // The node has said what came of it; but one that fails may have made it.
    if (error instanceof Refused && error.status < 500 && open === mine) open = null;
    if (error instanceof Unanswered) error.message += ". The change may have been made; who tries the same again makes it once.";
    throw error;
  }
}

/** Sets a value, given as JSON text, if the entry is still the one with that tag; "*": if there is none. */
export async function put(path, text, tag) {
  const condition = tag === "*" ? { "If-None-Match": "*" } : tag ? { "If-Match": tag } : {};
  const headers = { "Content-Type": "application/json", ...condition };
  return JSON.parse((await change(path, { method: "PUT", body: text, headers })).text);
}

/** Deletes an entry, if it is still the one with that tag. */
export async function remove(path, tag) {
  return change(path, { method: "DELETE", headers: tag ? { "If-Match": tag } : {} });
}

/** Reads a stream of events until it ends, or nothing has come for long; `on(kind, data)` gets each. */
export async function events(path, on, signal) {
  let rest = "";
  await hear(path, { signal, headers: { Accept: "text/event-stream" } }, STREAM_MS, () => on("open", null), (part) => {
    const parts = (rest + part).split("\n\n");
    rest = parts.pop();
    for (const event of parts) {
      let kind = "message";
      const data = [];
      for (const line of event.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("data: ")) data.push(line.slice(6));
      }
      if (data.length > 0) on(kind, JSON.parse(data.join("\n")));
    }
  });
}
