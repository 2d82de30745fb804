// Text as it is shown: what no reader sees is written by its number, so that nothing looks like something else. Control
// characters, marks that turn the direction of writing, and what has no shape of its own. Commands have the same list
// (crates/command/src/output.rs); tests/pure/characters.rs compares them.

/** Those below U+10000 that belong to no line of text, and those above. Not U+FE00 to U+FE0F: most pictures have one. */
const HIDDEN = "\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff0-\\ufff8";
const FAR = "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}";

const IN_PATH = new RegExp(`[\\x00-\\x1f${HIDDEN}${FAR}]`, "gu");
/** Lines and tabs are seen. */
const IN_TEXT = new RegExp(`[\\x00-\\x08\\x0b-\\x1f${HIDDEN}${FAR}]`, "gu");

const number = (unit) => unit.charCodeAt(0).toString(16).padStart(4, "0");

/** A written path. What is typed so is the same path. */
export const visible = (text) => text.replace(IN_PATH, (c) => (c.length === 1 ? `:u${number(c)}` : `:u{${c.codePointAt(0).toString(16)}}`));

/** Any other text. In JSON, what is written so is the same string. */
export const seen = (text) => text.replace(IN_TEXT, (c) => c.replace(/[^]/g, (unit) => `\\u${number(unit)}`));
