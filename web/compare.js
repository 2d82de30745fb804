// Two values side by side, with what differs marked.

import { el } from "./dom.js";

/** Longer values are not shown whole. */
const LONG = 4096;

/** What two texts have in common at both ends, and what differs between. */
function parts(a, b) {
  const most = Math.min(a.length, b.length);
  let start = 0, end = 0;
  while (start < most && a[start] === b[start]) start++;
  while (end < most - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  return [start, end];
}

function marked(whole, [start, end]) {
  const cut = whole.length - end;
  // Of long values, what surrounds the difference.
  const from = whole.length > LONG ? Math.max(0, start - LONG / 4) : 0;
  const middle = whole.slice(start, cut).slice(0, LONG);
  const tail = whole.slice(cut, cut + (whole.length > LONG ? LONG / 4 : LONG));
  return [from > 0 ? "…" : "", whole.slice(from, start), middle ? el("mark", {}, middle) : "", tail, cut + tail.length < whole.length ? "…" : ""];
}

/** Two values; null is one that was deleted. */
export function pair(nameA, a, nameB, b) {
  const common = parts(a ?? "", b ?? "");
  const side = (name, value) => el("div", {}, el("h3", {}, name), value === null ? el("p", { class: "quiet" }, "(deleted)") : el("pre", {}, marked(value, common)));
  return el("div", { class: "pair" }, side(nameA, a), side(nameB, b));
}
