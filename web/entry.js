// One entry: its value, who wrote it, and an editor. A change is made only to what was seen: if somebody else was
// faster, both values are shown.

import { get, put as send, remove, at, labelOf, Refused } from "./api.js";
import { el, moment, put } from "./dom.js";
import { pair } from "./compare.js";
import { spell } from "./paths.js";

/** Values up to so many characters are shown at once, and on demand. */
const SHOWN_MAX = 64 << 10, SHOWN_ON_DEMAND_MAX = 1 << 20;

/** What there is where there is no entry. */
const NONE = { there: false, text: "", tag: "*", tock: "", time: "", chain: "" };

/** An entry as it is now; its tag is "*" where there is none. */
export async function fetchEntry(path, tag) {
  try {
    const headers = tag && tag !== "*" ? { "If-None-Match": tag } : {};
    const answer = await get(at(path), { headers });
    const field = (name) => answer.headers.get(name) ?? "";
    return { there: true, text: answer.text.replace(/\n$/, ""), tag: labelOf(answer.headers), tock: field("distkv-tock"), time: field("distkv-time"), chain: field("distkv-chain") };
  } catch (error) {
    if (error instanceof Refused && error.status === 304) return null;
    if (error instanceof Refused && error.status === 404) return tag === "*" ? null : NONE;
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
    Object.assign(this, { pane, say, changed, path: null, seen: null, changing: null, changes: 0 });
    this.title = el("h2");
    this.facts = el("dl");
    this.editor = el("textarea", { id: "value", rows: 12, spellcheck: "false", autocomplete: "off", oninput: () => this.buttons() });
    this.label = el("label", { for: "value" }, "Value, as JSON");
    this.save = el("button", { type: "button", class: "main", onclick: () => this.change(this.editor.value, this.seen.tag) }, "Save");
    this.drop = el("button", { type: "button", onclick: () => this.change(null, this.seen.tag) }, "Delete");
    this.again = el("button", { type: "button", onclick: () => this.load(true) }, "Undo edits");
    this.note = el("div", { role: "group", "aria-label": "Messages" });
    this.before = el("div", { role: "group", "aria-label": "Messages of the entry before" });
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
    for (const part of [this.before, this.note, this.facts, this.large]) put(part);
    this.buttons();
    this.pane.replaceChildren(this.before, this.title, this.note, this.facts, this.label, this.editor, this.large, el("p", { class: "bar" }, this.save, this.drop, this.again));
    this.loading = this.load(false);
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
    if (this.seen.tag !== draft.tag) return this.meet(this.path, draft.text);
    this.editor.value = draft.text;
    this.buttons();
  }

  get isEdited() { return this.seen !== null && this.editor.value !== this.shown; }

  /** Looks whether it is as it was. */
  refresh() { if (this.path && !this.isChanging) this.load(false); }

  /** Whether a change of what is shown is under way. */
  get isChanging() { return this.changing !== null && this.changing === this.path; }

  async load(anew) {
    const { path, changes } = this;
    let entry;
    try {
      entry = await fetchEntry(path, anew ? null : this.seen?.tag);
    } catch (error) {
      if (path === this.path) this.tell("bad", error.message);
      return;
    }
    if (path !== this.path || entry === null) return;
    // What was saved here meanwhile is no change by somebody else, and what was there before it is not there any more.
    if (changes !== this.changes || (!anew && entry.tag === this.seen?.tag)) return;
    if (!anew && this.isEdited) {
      // That both are shown is more.
      if (!this.meets) this.tell("warn", "This entry has changed since you began to edit it. Save shows both.");
      return;
    }
    if (anew || !this.seen) {
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
    this.save.disabled = !this.isEdited || this.isChanging;
    this.again.disabled = !this.isEdited;
    this.drop.disabled = !this.seen?.there || this.isChanging;
  }

  tell(kind, ...what) {
    this.meets = false;
    put(this.note, el("div", { class: `box ${kind}` }, ...what));
    const words = what.map((part) => (typeof part === "string" ? part : "")).join(" ").trim();
    if (words) this.say(words);
  }

  /** Makes a change of the entry that is shown, if it is still the one with that tag; null: it is deleted. */
  async change(mine, tag) {
    const path = this.path;
    this.changing = path;
    this.changes += 1;
    this.buttons();
    try {
      await this.make(path, mine, tag);
    } finally {
      if (this.changing === path) this.changing = null;
      this.buttons();
    }
  }

  /** The same. Whoever looks at it may move on to another entry meanwhile, to which nothing here belongs. */
  async make(path, mine, tag) {
    const done = mine === null ? "deleted" : "saved", before = mine ?? this.editor.value;
    let own = NONE;
    try {
      if (mine === null) await remove(path, tag);
      else own = { ...NONE, there: true, text: mine, tag: (await send(path, mine, tag)).etag };
    } catch (error) {
      const isLate = error instanceof Refused && error.status === 412;
      if (path !== this.path) return this.tellBefore(path, done, isLate ? "somebody else had changed it." : error.message);
      return isLate ? this.meet(path, mine) : this.tell("bad", error.message);
    }
    this.changed();
    if (path !== this.path) return;
    const told = mine === null ? "Deleted." : "Saved.";
    this.tell("good", told);
    let entry = own;
    try {
      entry = await fetchEntry(path, null);
    } catch (error) {
      if (path === this.path) this.tell("warn", `${told} What is there now could not be read: ${error.message}`);
    }
    if (path !== this.path) return;
    // What was typed meanwhile is the next edit: of what was made, whatever somebody else has made of it since.
    const typed = this.editor.value, isOwn = entry.tag === own.tag, isTyped = typed !== before;
    this.take(isTyped && !isOwn ? { ...entry, there: own.there, text: own.text, tag: own.tag } : entry);
    if (isTyped) {
      this.editor.value = typed;
      this.buttons();
    }
    if (!isOwn) this.tell("warn", `${told.slice(0, -1)}, and then somebody else has changed it. ${isTyped ? "Save shows both." : "This is theirs."}`);
  }

  /** A change of an entry that is not shown any more was not made. Who has left this view sees none. */
  tellBefore(path, done, why) {
    const words = `${spell(path)} was not ${done}: ${why}`;
    if (!this.path) return;
    put(this.before, el("div", { class: "box bad" }, words));
    this.say(words);
  }

  /** Somebody else was faster. */
  async meet(path, mine) {
    let theirs;
    try {
      theirs = await fetchEntry(path, null);
    } catch (error) {
      if (path === this.path) this.tell("bad", `Somebody else has changed this entry since you saw it. Nothing was changed. What it is now could not be read: ${error.message}`);
      return;
    }
    if (path !== this.path) return;
    if (mine === null && !theirs.there) {
      this.take(theirs);
      return this.tell("good", "Somebody else has deleted it before.");
    }
    const overwrite = () => {
      if (path !== this.path) return;
      // What was typed since is the next edit.
      if (mine !== null && !this.isEdited) this.editor.value = mine;
      return this.change(mine, theirs.tag);
    };
    const take = () => { if (path === this.path) this.load(true); };
    this.tell("warn", "Somebody else has changed this entry since you saw it. Nothing was changed.",
      pair("yours", mine, "theirs", theirs.there ? theirs.text : null),
      el("p", { class: "quiet" }, theirs.there ? [`theirs was written ${written(theirs.chain)} `, moment(theirs.time)] : "they deleted it"),
      el("p", { class: "bar" },
        el("button", { type: "button", onclick: overwrite }, mine === null ? "Delete theirs, too" : "Overwrite theirs"),
        el("button", { type: "button", onclick: take }, "Take theirs")));
    this.meets = true;
    this.note.querySelector("button")?.focus();
  }
}
