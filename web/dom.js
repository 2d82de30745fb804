// Builds what is shown. All text goes in as text, never as markup, and so that all of it is seen.

import { seen } from "./seen.js";

/** An element: what belongs to it, and its children; strings become text. */
export function el(name, props = {}, ...children) {
  const node = document.createElement(name);
  set(node, props);
  add(node, children);
  return node;
}

/** The same for pictures. */
export function svg(name, props = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  set(node, props);
  add(node, children);
  return node;
}

function set(node, props) {
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
}

function add(node, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) node.append(typeof child === "string" ? seen(child) : child);
  }
}

/** Replaces what is in an element, unless it would look the same: so that focus and selection stay. */
export function put(node, ...children) {
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  const old = [...node.childNodes];
  if (old.length === fresh.childNodes.length && old.every((o, i) => o.isEqualNode(fresh.childNodes[i]))) return false;
  // Of several children, those that are the same stay.
  const news = [...fresh.childNodes];
  if (old.length === news.length) {
    news.forEach((n, i) => { if (!old[i].isEqualNode(n)) old[i].replaceWith(n); });
  } else {
    node.replaceChildren(...news);
  }
  return true;
}

/** Sets a text only where it is another one. */
export function text(node, value) {
  const shown = seen(value);
  if (node.textContent !== shown) node.textContent = shown;
}

let offset = 0;

/** The node's clock says this now, milliseconds. */
export function setClock(now) {
  offset = now - Date.now();
}

/** The time at the node, milliseconds since 1970. */
export function now() {
  return Date.now() + offset;
}

/** A duration for people. */
export function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

/** An element that says for how long something has lasted; it goes on by itself. */
export function since(at) {
  return el("span", { "data-since": at }, duration(now() - at));
}

/** Lets all such elements go on. */
export function tick() {
  for (const node of document.querySelectorAll("[data-since]")) {
    text(node, duration(now() - Number(node.dataset.since)));
  }
}

/** A number for people. */
export function count(n) {
  return Number(n).toLocaleString("en");
}

/** One thing or several: "1 change", "2 changes". */
export function many(n, what) {
  return `${count(n)} ${what}${n === 1 ? "" : what.endsWith("y") ? "" : "s"}`;
}

/** Names for people: some of them, and how many more there are. */
export function names(list, total = list.length, most = 12) {
  const shown = list.slice(0, most).join(", ");
  const more = total - Math.min(list.length, most);
  return more > 0 ? `${shown} + ${more}` : shown;
}

/** A time of the day, at the reader's place. */
export function clock(ms) {
  return el("time", { datetime: new Date(ms).toISOString() }, new Date(ms).toLocaleTimeString("en-GB"));
}

/** When a change was made, as the node tells it, with its day; nothing if it does not. */
export function moment(told) {
  const ms = Date.parse(told);
  if (Number.isNaN(ms)) return null;
  return el("time", { datetime: told, title: told }, new Date(ms).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }));
}
