// Paths as people write them: strings with dots between them; ":" begins an element that is no string.

/** What stands for a character of a string. */
const ESCAPES = ".:_";

/** The elements of a written path, each as it is written. */
export function segments(text) {
  const found = [];
  if (text === ":" || text === "") return found;
  let part = null;
  for (let i = 0; i < text.length; i++) {
    const next = text[i + 1] ?? "";
    if (text[i] === ":" && next && ESCAPES.includes(next)) {
      part = (part ?? "") + text[i] + text[++i];
    } else if (text[i] === ".") {
      if (part !== null) found.push(part);
      part = "";
    } else if (text[i] === ":") {
      if (part !== null && part !== "") found.push(part);
      part = ":";
    } else {
      part = (part ?? "") + text[i];
    }
  }
  if (part !== null) found.push(part);
  return found;
}

/** The path as it is written. */
export function spell(path) {
  if (path.length === 0) return ":";
  return path.map((part, i) => {
    const isOther = part[0] === ":" && !(part[1] && ESCAPES.includes(part[1]));
    return (i === 0 || isOther ? "" : ".") + part;
  }).join("");
}
