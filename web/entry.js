// One entry: its value, who wrote it, and an editor. A change is made only to what was seen: if somebody else was
// faster, both values are shown. What is typed and not saved is kept while another entry, or another view, is shown.

import { get, put as send, remove, at, labelOf, Refused } from "./api.js";
import { el, moment, put } from "./dom.js";
import { pair } from "./compare.js";
import { hash, spell } from "./paths.js";
import { seen } from "./seen.js";

/** Values up to so many characters are shown at once, and on demand. */
const SHOWN_MAX = 64 << 10, SHOWN_ON_DEMAND_MAX = 1 << 20;

/** What there is where there is no entry. */
const NONE = { there: false, text: "", tag: "*", tock: "", time: "", chain: "" };

/** An entry as it is now; its tag is "*" where there is none. Its text is JSON in which all is seen. */
export async function fetchEntry(path, tag) {
  try {
    const headers = tag && tag !== "*" ? { "If-None-Match": tag } : {};
    const answer = await get(at(path), { headers });
    const field = (name) => answer.headers.get(name) ?? "";
    return { there: true, text: seen(answer.text.replace(/\n$/, "")), tag: labelOf(answer.headers), tock: field("distkv-tock"), time: field("distkv-time"), chain: field("distkv-chain") };
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

/** Why a change was refused, in the words of who has typed the value. */
const whyUnmade = (error) => error.message.replace(/^the body is /, "This is ");

export class Entry {
  /** `drafts`: what was typed for entries and not saved, which is told of in `kept`. */
  constructor(pane, say, changed, drafts, kept) {
    Object.assign(this, { pane, say, changed, drafts, kept, path: null, seen: null, base: null, changing: null, changes: 0, meets: null, isUnread: false, said: null });
    // The focus goes there where what had it is gone.
    this.title = el("h2", { tabindex: "-1" });
    this.facts = el("dl");
    this.editor = el("textarea", { id: "value", rows: 12, spellcheck: "false", autocomplete: "off", oninput: () => this.typed() });
    this.label = el("label", { for: "value" }, "Value, as JSON");
    this.save = el("button", { type: "button", class: "main", onclick: () => this.change(this.editor.value, this.base ?? this.seen.tag) }, "Save");
    this.drop = el("button", { type: "button", onclick: () => this.ask() }, "Delete");
    this.again = el("button", { type: "button", onclick: () => this.load(true) }, "Undo edits");
    this.note = el("div", { role: "group", "aria-label": "Messages" });
    this.before = el("div", { role: "group", "aria-label": "Messages of the entry before" });
    this.large = el("p");
    put(pane, el("p", { class: "quiet" }, "Choose an entry, or type a path."));
    this.tellKept();
  }

  async show(path) {
    if (this.path && spell(path) === spell(this.path)) return;
    const gone = this.stash();
    Object.assign(this, { path, seen: null, base: null, meets: null, isUnread: false });
    this.title.textContent = spell(path);
    // Nothing of the entry that was shown before stays, and what is typed before this one is here would be lost.
    this.editor.value = this.shown = "";
    this.editor.readOnly = true;
    for (const part of [this.before, this.note, this.facts, this.large]) put(part);
    this.buttons();
    this.tellKept();
    if (gone) this.tellAbove(`There are too many unsaved edits: that of ${spell(gone.path)} is gone.`);
    this.pane.replaceChildren(this.before, this.title, this.note, this.facts, this.label, this.editor, this.large, el("p", { class: "bar" }, this.save, this.drop, this.again));
    await this.load(false);
  }

  close() {
    this.stash();
    this.path = null;
  }

  /** What has been typed and not saved, if anything, and of which version it is an edit. */
  get draft() { return this.path && this.isEdited && !this.editor.readOnly ? { path: this.path, text: this.editor.value, tag: this.base ?? this.seen.tag } : null; }

  /** Keeps what has been typed here until this entry is shown again. Returns what there is no room for any more. */
  stash() {
    const { draft } = this;
    return draft && this.drafts.keep(draft);
  }

  /** Goes on with what was typed here before. */
  async resume() {
    const draft = this.drafts.take(this.path);
    this.tellKept();
    if (!draft || draft.text === this.shown) return;
    this.editor.readOnly = false;
    put(this.large);
    this.editor.value = draft.text;
    this.base = draft.tag;
    this.buttons();
    if (this.seen.tag === draft.tag) this.tell("", "You have typed this before. It is not saved.");
    else await this.meet(this.path, draft.text);
  }

  /** Which other entries have unsaved edits. */
  tellKept() {
    const paths = this.drafts.paths();
    this.kept.hidden = paths.length === 0;
    put(this.kept, "Not saved: ", paths.map((path, i) => [i > 0 ? ", " : "", el("a", { href: hash(path) }, spell(path))]).flat());
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
      // Both values, and what to do about them, stay.
      if (path === this.path && !this.meets) {
        this.tell("bad", error.message);
        this.isUnread = true;
      }
      return;
    }
    if (path !== this.path) return;
    // It can be read again, also where nothing has changed.
    if (this.isUnread) this.clear();
    if (entry === null) return;
    // What was saved here meanwhile is no change by somebody else, and what was there before it is not there any more.
    if (changes !== this.changes || (!anew && entry.tag === this.seen?.tag)) return;
    if (!anew && this.isEdited) {
      // That both are shown is more.
      if (!this.meets) this.tell("warn", "This entry has changed since you began to edit it. Save shows both.");
      return;
    }
    const isFirst = !this.seen;
    if (anew || isFirst) this.clear();
    this.take(entry);
    if (isFirst) await this.resume();
  }

  take(entry) {
    this.seen = entry;
    this.base = null;
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

  typed() {
    this.buttons();
    this.meets?.();
  }

  /** Takes back what was told. */
  clear() {
    const hadFocus = this.note.contains(document.activeElement);
    if (this.isUnread) this.say("", this.said);
    Object.assign(this, { meets: null, isUnread: false });
    put(this.note);
    if (hadFocus) this.title.focus();
  }

  tell(kind, ...what) {
    this.clear();
    put(this.note, el("div", { class: `box ${kind}` }, ...what));
    const words = what.map((part) => (typeof part === "string" ? part : "")).join(" ").trim();
    if (words) this.say(this.said = words);
  }

  /** Asks whether to delete what is seen now: one key, or one click, is soon made. */
  ask() {
    const { path } = this, { tag } = this.seen;
    const act = () => {
      this.clear();
      if (path === this.path) this.change(null, tag);
    };
    const keep = el("button", { type: "button", onclick: () => { this.clear(); this.drop.focus(); } }, "Keep it");
    this.tell("warn", `Delete ${spell(path)}? What is below it stays.`,
      el("p", { class: "bar" }, el("button", { type: "button", onclick: act }, "Delete it"), keep));
    keep.focus();
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
      if (path !== this.path) return this.tellBefore(path, done, isLate ? "somebody else had changed it." : whyUnmade(error));
      return isLate ? this.meet(path, mine) : this.tell("bad", whyUnmade(error));
    }
    this.changed();
    if (path !== this.path) {
      this.drafts.made(path, mine, own.tag);
      return this.tellKept();
    }
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
    this.tellAbove(words);
  }

  tellAbove(words) {
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
      // What is shown now: more may have been typed since.
      if (path === this.path) this.change(mine === null ? null : this.editor.value, theirs.tag);
    };
    const take = () => { if (path === this.path) this.load(true); };
    const both = el("div");
    const compare = () => put(both, pair("yours", mine === null ? null : this.editor.value, "theirs", theirs.there ? theirs.text : null));
    compare();
    this.tell("warn", "Somebody else has changed this entry since you saw it. Nothing was changed.", both,
      el("p", { class: "quiet" }, theirs.there ? [`theirs was written ${written(theirs.chain)} `, moment(theirs.time)] : "they deleted it"),
      el("p", { class: "bar" },
        el("button", { type: "button", onclick: overwrite }, mine === null ? "Delete theirs, too" : "Overwrite theirs"),
        el("button", { type: "button", onclick: take }, "Take theirs")));
    this.meets = compare;
    this.note.querySelector("button")?.focus();
  }
}
