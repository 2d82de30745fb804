// One entry: its value, who wrote it, and an editor. A change is made only to what was seen: if somebody else was
// faster, both values are shown.

import { get, put as send, remove, at, Refused } from "./api.js";
import { el, moment, put } from "./dom.js";
import { pair } from "./compare.js";
import { spell } from "./paths.js";

/** Values up to so many characters are shown at once, and on demand. */
const SHOWN_MAX = 64 << 10, SHOWN_ON_DEMAND_MAX = 1 << 20;

/** An entry as it is now; its tag is "*" where there is none. */
export async function fetchEntry(path, tag) {
  try {
    const headers = tag && tag !== "*" ? { "If-None-Match": tag } : {};
    const answer = await get(at(path), { headers });
    const field = (name) => answer.headers.get(name) ?? "";
    return { there: true, text: answer.text.replace(/\n$/, ""), tag: field("etag"), tock: field("distkv-tock"), time: field("distkv-time"), chain: field("distkv-chain") };
  } catch (error) {
    if (error instanceof Refused && error.status === 304) return null;
    if (error instanceof Refused && error.status === 404) return tag === "*" ? null : { there: false, text: "", tag: "*", tock: "", time: "", chain: "" };
    throw error;
  }
}

/** Who wrote an entry, in words. */
export function written(chain) {
  const events = typeof chain === "string" ? chain.split(" ").filter(Boolean) : (chain ?? []);
  if (events.length === 0) return "";
  const told = events.map((event) => {
    const cut = event.lastIndexOf(":");
    return [event.slice(0, cut).replace(/~.*/, ""), event.slice(cut + 1)];
  });
  const [[node, tick], ...before] = told;
  const knew = before.length > 0 ? `, which knew ${before.map(([n, t]) => `${n}'s change ${t}`).join(", ")}` : "";
  return `by ${node}, its change ${tick}${knew}`;
}

export class Entry {
  constructor(pane, say, changed) {
    Object.assign(this, { pane, say, changed, path: null, seen: null, saving: false });
    this.title = el("h2");
    this.facts = el("dl");
    this.editor = el("textarea", { id: "value", rows: 12, spellcheck: "false", autocomplete: "off", oninput: () => this.buttons() });
    this.label = el("label", { for: "value" }, "Value, as JSON");
    this.save = el("button", { type: "button", class: "main", onclick: () => this.store(this.seen.tag) }, "Save");
    this.drop = el("button", { type: "button", onclick: () => this.erase() }, "Delete");
    this.again = el("button", { type: "button", onclick: () => this.load(true) }, "Undo edits");
    this.note = el("div", { role: "group", "aria-label": "Messages" });
    this.large = el("p");
    put(pane, el("p", { class: "quiet" }, "Choose an entry, or type a path."));
  }

  async show(path) {
    if (this.path && spell(path) === spell(this.path)) return;
    this.path = path;
    this.seen = null;
    this.title.textContent = spell(path);
    // Nothing of the entry that was shown before stays, and what is typed before this one is here would be lost.
    this.editor.value = this.shown = "";
    this.editor.readOnly = true;
    for (const part of [this.note, this.facts, this.large]) put(part);
    this.buttons();
    this.pane.replaceChildren(this.title, this.note, this.facts, this.label, this.editor, this.large, el("p", { class: "bar" }, this.save, this.drop, this.again));
    this.loading = this.load(true);
    await this.loading;
  }

  close() { this.path = null; }

  /** What has been typed and not saved, if anything. */
  get draft() { return this.isEdited && !this.editor.readOnly ? { path: this.path, text: this.editor.value, tag: this.seen.tag } : null; }

  /** Goes on with what was typed before a login. */
  async resume(draft) {
    if (!draft || spell(draft.path) !== spell(this.path ?? [])) return;
    await this.loading;
    if (!this.seen || this.isEdited || spell(draft.path) !== spell(this.path ?? [])) return;
    if (this.seen.tag !== draft.tag) return this.meet(draft.text);
    this.editor.value = draft.text;
    this.buttons();
  }

  get isEdited() { return this.seen !== null && this.editor.value !== this.shown; }

  /** Looks whether it is as it was. */
  refresh() { if (this.path && this.seen && !this.saving) this.load(false); }

  async load(anew) {
    const path = this.path;
    let entry;
    try {
      entry = await fetchEntry(path, anew ? null : this.seen?.tag);
    } catch (error) {
      if (path === this.path) this.tell("bad", error.message);
      return;
    }
    if (path !== this.path || entry === null) return;
    // What was saved here meanwhile is no change by somebody else.
    if (!anew && (this.saving || entry.tag === this.seen?.tag)) return;
    if (!anew && this.isEdited) {
      // That both are shown is more.
      if (!this.meets) this.tell("warn", "This entry has changed since you began to edit it. Save shows both.");
      return;
    }
    if (anew) {
      put(this.note);
      this.meets = false;
    }
    this.take(entry);
  }

  take(entry) {
    this.seen = entry;
    const isLong = entry.text.length > SHOWN_MAX;
    this.editor.readOnly = isLong;
    this.shown = isLong ? entry.text.slice(0, SHOWN_MAX) : entry.text;
    this.editor.value = this.shown;
    this.shown = this.editor.value;
    put(this.large, isLong ? `These are the first ${SHOWN_MAX >> 10} KiB of ${(entry.text.length / 1024).toFixed(0)}. ` : null,
      isLong && entry.text.length <= SHOWN_ON_DEMAND_MAX ? el("button", { type: "button", onclick: () => this.all() }, "Show all") : null,
      isLong && entry.text.length > SHOWN_ON_DEMAND_MAX ? "distkv-node get shows all of it." : null);
    put(this.facts, entry.there
      ? [el("dt", {}, "written"), el("dd", {}, written(entry.chain)),
        ...(moment(entry.time) ? [el("dt", {}, "when"), el("dd", {}, moment(entry.time), " by that node's clock")] : []),
        el("dt", {}, "tock"), el("dd", {}, entry.tock), el("dt", {}, "tag"), el("dd", { class: "mono" }, entry.tag)]
      : [el("dt", {}, "entry"), el("dd", {}, "there is none here; Save makes one")]);
    this.buttons();
  }

  all() {
    this.editor.readOnly = false;
    this.editor.value = this.shown = this.seen.text;
    this.shown = this.editor.value;
    put(this.large);
    this.editor.focus();
  }

  buttons() {
    this.save.disabled = !this.isEdited;
    this.again.disabled = !this.isEdited;
    this.drop.disabled = !this.seen?.there;
  }

  tell(kind, ...what) {
    this.meets = false;
    put(this.note, el("div", { class: `box ${kind}` }, ...what));
    const words = what.map((part) => (typeof part === "string" ? part : "")).join(" ").trim();
    if (words) this.say(words);
  }

  async store(tag) {
    const path = this.path, mine = this.editor.value;
    this.saving = true;
    try {
      await this.keep(path, mine, tag);
    } finally {
      this.saving = false;
    }
  }

  async keep(path, mine, tag) {
    let made;
    try {
      made = (await send(path, mine, tag)).etag;
    } catch (error) {
      if (path !== this.path) return;
      if (error instanceof Refused && error.status === 412) return this.meet(mine);
      return this.tell("bad", error.message);
    }
    if (path !== this.path) return;
    this.tell("good", "Saved.");
    const entry = await fetchEntry(path, null);
    if (path !== this.path) return;
    // What was typed meanwhile is the next edit: of what was saved, whatever somebody else has made of it since.
    const typed = this.editor.value, isOwn = entry.tag === made, isTyped = typed !== mine;
    this.take(isTyped && !isOwn ? { ...entry, there: true, text: mine, tag: made } : entry);
    if (isTyped) {
      this.editor.value = typed;
      this.buttons();
    }
    if (!isOwn) this.tell("warn", isTyped ? "Saved, and then somebody else has changed it. Save shows both." : "Saved, and then somebody else has changed it. This is theirs.");
    this.changed();
  }

  async erase() {
    const path = this.path;
    try {
      await remove(path, this.seen.tag);
    } catch (error) {
      if (error instanceof Refused && error.status === 412) return this.meet(null);
      return this.tell("bad", error.message);
    }
    this.tell("good", "Deleted.");
    this.take(await fetchEntry(path, null));
    this.changed();
  }

  /** Somebody else was faster. */
  async meet(mine) {
    const path = this.path;
    let theirs;
    try {
      theirs = await fetchEntry(path, null);
    } catch (error) {
      return this.tell("bad", error.message);
    }
    if (path !== this.path) return;
    const overwrite = async () => {
      if (mine === null) { this.seen = theirs; return this.erase(); }
      this.editor.value = mine;
      await this.store(theirs.tag);
    };
    this.tell("warn", "Somebody else has changed this entry since you saw it. Nothing was changed.",
      pair("yours", mine, "theirs", theirs.there ? theirs.text : null),
      el("p", { class: "quiet" }, theirs.there ? [`theirs was written ${written(theirs.chain)} `, moment(theirs.time)] : "they deleted it"),
      el("p", { class: "bar" },
        el("button", { type: "button", onclick: overwrite }, mine === null ? "Delete theirs, too" : "Overwrite theirs"),
        el("button", { type: "button", onclick: () => this.load(true) }, "Take theirs")));
    this.meets = true;
    this.note.querySelector("button")?.focus();
  }
}
