// The data: the tree, and one entry of it, which may be changed here.

import { Tree } from "./tree.js";
import { Entry } from "./entry.js";
import { el } from "./dom.js";
import { hash, segments, shownBy, spell } from "./paths.js";

/** What is visible is asked for again at most this often while the data changes. */
const REFRESH_MS = 1000;

export class Data {
  constructor(main, { drafts }, { say }) {
    this.tree = new Tree("Entries", (path) => { location.hash = hash(path); });
    this.path = el("input", { type: "text", id: "path", spellcheck: "false", autocomplete: "off", placeholder: "site.lamp" });
    const form = el("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); this.open(); } },
      el("label", { for: "path" }, "Path"), this.path, el("button", { type: "submit" }, "Open or make"));
    this.pane = el("div", { class: "entry" });
    const kept = el("p", { class: "quiet" });
    this.entry = new Entry(this.pane, say, () => this.tree.refresh(), drafts, kept);
    main.append(el("div", { class: "data" }, el("div", { class: "list" }, el("h1", {}, "Data"), form, kept, this.tree.grid), this.pane));
    this.tree.draw();
    this.refreshed = performance.now();
  }

  open() {
    // Spaces around what was typed are slips: a space that belongs to a name is written ":_". All other white space may belong to
    // a name.
    location.hash = hash(segments(this.path.value.replace(/^ +| +$/g, "")));
  }

  /** An entry is to be shown, named by the parts of the page's address. */
  go(parts) {
    const path = shownBy(parts);
    if (path === null) return;
    this.path.value = spell(path);
    this.tree.reveal(path);
    this.entry.show(path);
  }

  /** What is being typed, and is not saved. */
  get draft() { return this.entry.draft; }

  /** Something in the data has changed, wherever. */
  changed() {
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.refreshed = performance.now();
      this.tree.refresh();
      this.entry.refresh();
    }, Math.max(0, this.refreshed + REFRESH_MS - performance.now()));
  }

  close() {
    clearTimeout(this.timer);
    this.tree.close();
    this.entry.close();
  }
}
