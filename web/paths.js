// Paths as people write them ("site.lamp", "a:.b", "x:1"), and as the segments of a URL, each an element: a string as it
// is, or with ":" in front what is no string, or a string that would look like that.

/** What is written for a character within a string. */
const WRITTEN = { ".": ":.", ":": "::", " ": ":_" };
const READ = { ".": ".", ":": ":", _: " " };

const isOther = (part) => part[0] === ":" && !(part[1] in READ);

/** A written element as a segment. */
function segment(part) {
  if (isOther(part)) return part;
  const text = part.replace(/:([.:_])/g, (_, c) => READ[c]);
  return text[0] === "." || text[0] === ":" ? part : text;
}

/** A segment as a written element. */
function element(segment) {
  return segment[0] === ":" ? segment : segment.replace(/[.: ]/g, (c) => WRITTEN[c]);
}

/** The segments of a written path. */
export function segments(text) {
  const found = [];
  if (text === ":" || text === "") return found;
  let part = null;
  for (let i = 0; i < text.length; i++) {
    const next = text[i + 1] ?? "";
    if (text[i] === ":" && next in READ) {
      part = (part ?? "") + text[i] + text[++i];
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

/** The path of these segments as it is written. */
export function spell(path) {
  if (path.length === 0) return ":";
  return path.map(element).map((part, i) => (i === 0 || isOther(part) ? part : `.${part}`)).join("");
}
