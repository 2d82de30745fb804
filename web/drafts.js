// What has been typed into entries and not saved, while something else is shown. It is in this page's memory, and nowhere else.

import { spell } from "./paths.js";

/** So many entries may have unsaved edits. */
const DRAFTS_MAX = 64;

export class Drafts {
  constructor() { this.all = new Map(); }

  /** Keeps one: `{ path, text, tag }`, an edit of the version with that tag. Returns the oldest one, if there is no room for it
   * any more. */
  keep(draft) {
    this.all.delete(spell(draft.path));
    this.all.set(spell(draft.path), draft);
    if (this.all.size <= DRAFTS_MAX) return null;
    const [name, oldest] = this.all.entries().next().value;
    this.all.delete(name);
    return oldest;
  }

  /** The one of that entry, if there is one; it is not kept any more. */
  take(path) {
    const draft = this.all.get(spell(path)) ?? null;
    this.all.delete(spell(path));
    return draft;
  }

  /** A change of that entry was made, and is the version with that tag: what was saved is no draft, and what was typed since is
   * an edit of it. */
  made(path, text, tag) {
    const draft = this.all.get(spell(path));
    if (draft && draft.text === text) this.all.delete(spell(path));
    else if (draft) draft.tag = tag;
  }

  /** Of which entries there are some. */
  paths() { return [...this.all.values()].map((draft) => draft.path); }

  get isEmpty() { return this.all.size === 0; }

  clear() { this.all.clear(); }
}
