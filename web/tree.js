// A tree of any size, of which only what is visible is in the document: 200 children are asked for at once, and what
// was scrolled out of sight for long is forgotten and asked for again. Moves by the keys of a tree grid.

import { json, at } from "./api.js";
import { el, text, count } from "./dom.js";
import { spell } from "./paths.js";

/** Children that are asked for at once. */
const BLOCK = 200;
/** Blocks of one branch that are kept. */
const BLOCKS_MAX = 40;
/** Height of a row, pixels, as in the style sheet. */
const ROW = 24;
/** Browsers cannot draw what is higher than this; beyond it a pixel is more than one row. */
const HEIGHT_MAX = 30e6;
/** Rows outside of what is visible that are drawn, so that scrolling shows no gaps. */
const SPARE = 6;
/** More is asked for when fewer rows than this are left below. */
const AHEAD = 100;

/** The children of one entry. */
class Branch {
  constructor(path, parent = null) {
    Object.assign(this, { path, parent, at: -1, blocks: new Map(), cursors: [null], counts: [], starts: [0], done: false, busy: new Map(), stale: new Set(), open: new Map(), error: "" });
  }

  /** How many rows it has of its own; one more while there is more to come. */
  get size() {
    return this.starts[this.counts.length] + (this.done ? 0 : 1);
  }

  /** Its open branches whose place is known, in order. */
  get opened() {
    return [...this.open.values()].filter((branch) => branch.at >= 0).sort((a, b) => a.at - b.at);
  }

  /** All rows, with those of open branches. */
  get total() {
    return this.opened.reduce((sum, branch) => sum + branch.total, this.size);
  }

  /** Which block a child is in, and where. */
  find(index) {
    let low = 0, high = this.counts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle + 1] <= index) low = middle + 1;
      else high = middle;
    }
    return [low, index - this.starts[low]];
  }

  /** Children have come. */
  take(block, { items, next }) {
    this.blocks.delete(block);
    this.blocks.set(block, items);
    for (const old of this.blocks.keys()) {
      if (this.blocks.size <= BLOCKS_MAX) break;
      this.blocks.delete(old);
    }
    this.counts[block] = items.length;
    if (next === null || next === undefined) {
      this.counts.length = this.cursors.length = block + 1;
      this.done = true;
    } else {
      this.cursors[block + 1] = next;
      if (block + 1 === this.counts.length) this.done = false;
    }
    this.starts.length = block + 1;
    for (let i = block; i < this.counts.length; i++) this.starts[i + 1] = this.starts[i] + this.counts[i];
    // Open branches may have another place now.
    const places = new Map(items.map((item, i) => [item.name, this.starts[block] + i]));
    for (const [name, branch] of this.open) {
      if (places.has(name)) branch.at = places.get(name);
      else if (branch.at >= this.starts[block] && branch.at < this.starts[block + 1]) branch.at = -1;
    }
  }
}

export class Tree {
  /** `chosen(path)`: somebody wants to see that entry. */
  constructor(label, chosen) {
    this.root = new Branch([]);
    this.chosen = chosen;
    this.cursor = 0;
    this.selected = "";
    // Whether to go on to the last row, however many are still to come.
    this.toEnd = false;
    this.pool = [];
    this.rows = el("div", { class: "rows", role: "rowgroup" });
    this.grid = el("div", { class: "tree", role: "treegrid", tabindex: "0", "aria-label": label, onkeydown: (e) => this.key(e), onclick: (e) => this.click(e) }, this.rows);
    this.grid.addEventListener("scroll", () => this.drawSoon(), { passive: true });
    for (const kind of ["wheel", "pointerdown"]) this.grid.addEventListener(kind, () => { this.toEnd = false; }, { passive: true });
    this.size = new ResizeObserver(() => this.drawSoon());
    this.size.observe(this.grid);
  }

  close() {
    this.size.disconnect();
    this.closed = true;
  }

  /** Something has changed: what is visible is asked for again, what is not is forgotten. */
  refresh() {
    const visit = (branch) => {
      for (const block of branch.blocks.keys()) branch.stale.add(block);
      branch.error = "";
      // Where there is nothing yet, no row asks.
      if (branch.size === 0) this.load(branch, 0);
      branch.open.forEach(visit);
    };
    visit(this.root);
    this.draw();
  }

  /** Opens all that leads to an entry, where it was loaded, and selects it. */
  async reveal(path) {
    this.selected = JSON.stringify(path);
    let branch = this.root;
    for (const name of path.slice(0, -1)) {
      if (branch.counts.length === 0) await this.load(branch, 0);
      const item = [...branch.blocks.values()].flat().find((item) => item.name === name);
      if (!item || !item.more) break;
      branch = this.expand(branch, item, this.place(branch, name));
    }
    this.draw();
  }

  place(branch, name) {
    for (const [block, items] of branch.blocks) {
      const i = items.findIndex((item) => item.name === name);
      if (i >= 0) return branch.starts[block] + i;
    }
    return -1;
  }

  expand(branch, item, index) {
    const child = branch.open.get(item.name) ?? new Branch([...branch.path, item.name], branch);
    child.at = index;
    branch.open.set(item.name, child);
    return child;
  }

  /** The row at that place among all. */
  row(number, branch = this.root, level = 1) {
    let above = 0;
    for (const child of branch.opened) {
      if (number <= child.at + above) break;
      const inside = number - (child.at + 1 + above);
      if (inside < child.total) return this.row(inside, child, level + 1);
      above += child.total;
    }
    const index = number - above;
    const [block, i] = branch.find(index);
    return { branch, level, index, block, item: branch.blocks.get(block)?.[i] ?? null };
  }

  /** The place among all of a branch's child. */
  number(branch, index) {
    let number = index;
    for (const child of branch.opened) if (child.at < index) number += child.total;
    return branch.parent ? this.number(branch.parent, branch.at) + 1 + number : number;
  }

  /** Asks for children; whoever asks while they are on their way waits for the same. */
  load(branch, block) {
    if (!branch.busy.has(block) && !this.closed) branch.busy.set(block, this.fetch(branch, block));
    return branch.busy.get(block);
  }

  async fetch(branch, block) {
    branch.stale.delete(block);
    const after = branch.cursors[block];
    const query = `?children&limit=${BLOCK}` + (after === null || after === undefined ? "" : `&after=${encodeURIComponent(after)}`);
    try {
      branch.take(block, await json(at(branch.path) + query));
      branch.error = "";
    } catch (error) {
      branch.error = error.message;
      if (branch.counts.length === 0) branch.done = false;
    }
    branch.busy.delete(block);
    const goes = this.toEnd;
    if (branch.error || this.root.done) this.toEnd = false;
    if (branch.error) this.draw(false);
    else if (goes) this.move(this.root.total - 1);
    else this.drawSoon();
  }

  drawSoon() {
    if (this.frame || this.closed) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  /** What is visible: the first row, and how many. */
  seen() {
    const { scrollTop, clientHeight } = this.grid;
    const total = this.root.total, fit = Math.ceil(clientHeight / ROW);
    const height = Math.min(total * ROW, HEIGHT_MAX);
    const scaled = total * ROW > HEIGHT_MAX;
    const part = scrollTop / Math.max(1, height - clientHeight);
    const first = scaled ? Math.round(part * Math.max(0, total - fit)) : Math.floor(scrollTop / ROW);
    return { total, fit, height, scaled, first: Math.max(0, Math.min(first, total - 1)), scrollTop };
  }

  stretch(height) {
    const high = `${height}px`;
    if (this.rows.style.height !== high) this.rows.style.height = high;
  }

  draw(loads = true) {
    if (this.closed) return;
    const { total, fit, height, scaled, first, scrollTop } = this.seen();
    this.cursor = Math.max(0, Math.min(this.cursor, total - 1));
    this.stretch(height);
    const from = Math.max(0, first - SPARE), to = Math.min(total, first + fit + SPARE);
    let current = "";
    for (let n = from; n < to; n++) {
      const row = this.row(n);
      const node = this.node(n - from);
      const top = scaled ? scrollTop + (n - first) * ROW : n * ROW;
      node.style.transform = `translateY(${top}px)`;
      this.fill(node, row, n);
      if (n === this.cursor) current = node.id;
      if (loads && !row.branch.error) this.want(row);
    }
    for (let i = to - from; i < this.pool.length; i++) this.pool[i].hidden = true;
    if (current) this.grid.setAttribute("aria-activedescendant", current);
    else this.grid.removeAttribute("aria-activedescendant");
    this.grid.setAttribute("aria-rowcount", this.root.done ? total : -1);
    // Before the end is reached there is more.
    if (loads && total > 0 && to + AHEAD >= total) {
      const last = this.row(total - 1);
      if (!last.branch.error) this.want(last);
    }
  }

  want({ branch, block, item }) {
    if (item === null && !(branch.done && block >= branch.counts.length)) this.load(branch, Math.min(block, branch.counts.length));
    else if (branch.stale.has(block)) this.load(branch, block);
  }

  node(i) {
    while (this.pool.length <= i) {
      const node = el("div", { role: "row", id: `row-${this.pool.length}` }, el("span", { role: "gridcell", class: "name" }), el("span", { role: "gridcell", class: "value" }));
      this.pool.push(node);
      this.rows.append(node);
    }
    this.pool[i].hidden = false;
    return this.pool[i];
  }

  fill(node, { branch, level, index, block, item }, n) {
    const [name, value] = node.children;
    const child = item && branch.open.get(item.name);
    const sign = item?.more ? (child ? "▾ " : "▸ ") : "   ";
    text(name, item ? sign + spell([item.name]) : `   ${branch.error || "…"}`);
    const isNext = !item && index > 0 && !branch.done && block >= branch.counts.length;
    if (isNext) text(value, `${count(index)} loaded, more follow; the key End goes to the last, and a path can be typed above`);
    else text(value, item?.start ? `${item.start}…` : item?.value === undefined ? "" : JSON.stringify(item.value));
    node.style.paddingLeft = `${level * 16 - 10}px`;
    node.setAttribute("aria-level", level);
    node.setAttribute("aria-rowindex", n + 1);
    if (item?.more) node.setAttribute("aria-expanded", String(Boolean(child)));
    else node.removeAttribute("aria-expanded");
    const isSelected = item && this.selected === JSON.stringify([...branch.path, item.name]);
    node.setAttribute("aria-selected", String(Boolean(isSelected)));
    node.classList.toggle("at", n === this.cursor);
    node.dataset.number = n;
  }

  toggle(number, wanted) {
    const { branch, index, item } = this.row(number);
    if (!item?.more) return;
    const isOpen = branch.open.has(item.name);
    if (isOpen === wanted) return;
    if (isOpen) branch.open.delete(item.name);
    else this.expand(branch, item, index);
    this.draw();
  }

  choose(number) {
    const { branch, item } = this.row(number);
    if (item) this.chosen([...branch.path, item.name]);
    else if (branch.error) { branch.error = ""; this.draw(); }
  }

  move(to) {
    const { total, first, fit, height: high, scaled } = this.seen();
    this.cursor = Math.max(0, Math.min(to, total - 1));
    // Children may have come since: without room for them, nothing scrolls there.
    this.stretch(high);
    const whole = Math.floor(this.grid.clientHeight / ROW);
    if (this.cursor < first || this.cursor >= first + whole) {
      const top = this.cursor < first ? this.cursor : this.cursor - whole + 1;
      this.grid.scrollTop = scaled ? ((high - this.grid.clientHeight) * top) / Math.max(1, total - fit) : top * ROW;
    }
    this.draw();
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.grid.clientHeight / ROW) - 1);
    const { branch, index, item } = this.row(this.cursor);
    const isOpen = item && branch.open.has(item.name);
    const acts = {
      ArrowDown: () => this.move(this.cursor + 1),
      ArrowUp: () => this.move(this.cursor - 1),
      PageDown: () => this.move(this.cursor + page),
      PageUp: () => this.move(this.cursor - page),
      Home: () => this.move(0),
      End: () => this.move(this.root.total - 1),
      ArrowRight: () => (isOpen ? this.move(this.cursor + 1) : this.toggle(this.cursor, true)),
      ArrowLeft: () => (isOpen ? this.toggle(this.cursor, false) : branch.parent ? this.move(this.number(branch.parent, branch.at)) : null),
      Enter: () => this.choose(this.cursor),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    this.toEnd = event.key === "End" && !this.root.done;
    acts[event.key](index);
  }

  click(event) {
    const row = event.target.closest?.("[role=row]");
    if (!row) return;
    const number = Number(row.dataset.number);
    this.cursor = number;
    const x = event.clientX - row.getBoundingClientRect().left - parseFloat(row.style.paddingLeft);
    if (x < 16) this.toggle(number);
    else this.choose(number);
    this.draw();
  }
}
