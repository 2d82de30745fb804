// Asks the node. The ticket is kept in this variable and nowhere else.

let ticket = null;

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

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (ticket !== null) headers.Authorization = `Bearer ${ticket}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  const text = await answer.text();
  let body = null;
  try { body = JSON.parse(text); } catch { /* It is no JSON: the status says enough. */ }
  throw new Refused(answer.status, body);
}

/** The text that is answered, and the header fields. */
export async function get(path, options) {
  const answer = await ask(path, options);
  return { text: await answer.text(), headers: answer.headers };
}

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

/** Reads a stream of events until it ends; `on(kind, data)` gets each. */
export async function events(path, on, signal) {
  const answer = await ask(path, { signal, headers: { Accept: "text/event-stream" } });
  on("open", null);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      let kind = "message";
      const data = [];
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("data: ")) data.push(line.slice(6));
      }
      if (data.length > 0) on(kind, JSON.parse(data.join("\n")));
    }
  }
}
