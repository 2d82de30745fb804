// Paths as people write them ("site.lamp", "a:.b", "x:1"), and as the segments of a URL, each an element: a string as it
// is, or with ":" in front what is no string, or a string that would look like that.

import { visible } from "./seen.js";

/** What is written for a character within a string. */
const WRITTEN = { ".": ":.", ":": "::", " ": ":_" };
const READ = { ".": ".", ":": ":", _: " " };

/** Escapes within a string. Such a number is never half of a pair. In braces it has up to six digits, and is at most 10ffff. */
const ESCAPE = /:(?:([.:_])|u(?:((?!d[89a-f])[0-9a-f]{4})|\{((?!0{0,2}d[89a-f]..\})(?:10[0-9a-f]{4}|0?[0-9a-f]{1,5}))\}))/gi;
const ESCAPE_HERE = new RegExp(ESCAPE, "iy");

/** The escape at this place; empty if there is none. */
function escapeAt(text, at) {
  ESCAPE_HERE.lastIndex = at;
  return ESCAPE_HERE.exec(text)?.[0] ?? "";
}

const isOther = (part) => part[0] === ":" && escapeAt(part, 0) === "";

/** A written element as a segment. */
function segment(part) {
  if (isOther(part)) return part;
  const text = part.replace(ESCAPE, (_, c, number, braced) => (c ? READ[c] : String.fromCodePoint(parseInt(number ?? braced, 16))));
  return text[0] === "." || text[0] === ":" ? part : text;
}

/** A segment as a written element. */
function element(segment) {
  const written = segment[0] === ":" ? segment : segment.replace(/[.: ]/g, (c) => WRITTEN[c]);
  return visible(written);
}

/** The segments of a written path. */
export function segments(text) {
  const found = [];
  if (text === ":" || text === "") return found;
  let part = null;
  for (let i = 0; i < text.length; i++) {
    const escape = escapeAt(text, i);
    if (escape !== "") {
      part = (part ?? "") + escape;
      i += escape.length - 1;
    } else if (text[i] === ".") {
      if (part !== null) found.push(part);
      part = "";
    } else if (text[i] === ":") {
      if (part) found.push(part);
      part = ":";
    } else {
      part = (part ?? "") + text[i];
    }
  }
  if (part !== null) found.push(part);
  return found.map(segment);
}

/** Where the page shows the entry with these segments. The root, which has none, is a colon there; "#data" alone shows no entry. */
export const hash = (path) => ["#data", ...(path.length === 0 ? [":"] : path.map(encodeURIComponent))].join("/");

/** The segments in such a place; null: no entry. A colon alone, or nothing behind a slash, is no element. */
export function shownBy(parts) {
  if (parts.length === 0) return null;
  return parts.every((part) => part === "") || (parts.length === 1 && parts[0] === ":") ? [] : parts;
}

/** The path of these segments as it is written. */
export function spell(path) {
  if (path.length === 0) return ":";
  return path.map(element).map((part, i) => (i === 0 || isOther(part) ? part : `.${part}`)).join("");
}
