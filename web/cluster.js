// The cluster: what is wrong, a split and its healing, and the members, worst first.

import { el, svg, put, now, since, count, many, names, duration } from "./dom.js";

/** Up to so many nodes are drawn as circles; more as squares. */
const CIRCLES_MAX = 12;
/** Most rows of members that are well which are shown when they are unfolded. */
const ROWS_MAX = 500;
/** What the columns are. */
const HEADS = ["name", "state", "for", "behind", "duties", "clients at"];
/** A healing is shown for so long after it is done. */
const HEALED_MS = 600000;

/** How each state looks: a sign, a class, and how bad it is. */
const LOOKS = {
  self: ["★", "self", 5], up: ["●", "up", 6], joining: ["◌", "odd", 3], suspect: ["◐", "odd", 1],
  down: ["✕", "down", 0], away: ["✕", "down", 0], left: ["○", "odd", 4],
};
const look = (row) => {
  const [sign, kind, rank] = LOOKS[row.state] ?? ["?", "odd", 2];
  if (row.state === "up" && (row.lagging || row.ready === false)) return ["◍", "odd", 2];
  return [sign, kind, rank];
};

/** Worst first; then by name, numbers in names by their size. */
function worstFirst(rows) {
  const order = new Intl.Collator("en", { numeric: true });
  return rows.sort((a, b) => look(a)[2] - look(b)[2] || (b.behind_s ?? 0) - (a.behind_s ?? 0) || order.compare(a.name, b.name));
}

export class Cluster {
  constructor(main, state) {
    this.state = state;
    this.unfolded = false;
    this.parts = ["old", "warnings", "split", "healing"].map(() => el("div"));
    this.picture = el("div", { class: "picture" });
    this.table = el("div", { class: "scroll" });
    this.fold = el("button", { type: "button", "aria-expanded": "false", onclick: () => { this.unfolded = !this.unfolded; this.draw(); } });
    this.fold.hidden = true;
    main.append(el("h1", {}, "Cluster"), ...this.parts, this.picture, this.table, this.fold);
  }

  draw() {
    const { cluster, members, connected, lost } = this.state;
    const [old, warnings, split, healing] = this.parts;
    // Nothing is known of what is now: it must not look as if it were.
    const told = connected ? null : lost ?? now();
    put(old, cluster && told ? el("p", { class: "box bad" }, "✕ No connection to the node: this is what it has said before, ", since(told), " ago or earlier.") : null);
    for (const part of [this.picture, this.table]) part.classList.toggle("old", told !== null);
    if (!cluster) {
      const why = this.state.mayLook ? "waiting for the node …" : "To see the cluster, log in as an operator.";
      put(warnings, el("p", { class: "quiet" }, why));
      return;
    }
    put(warnings, cluster.warnings.map((line) => el("p", { class: "box warn" }, "! ", line)));
    put(split, this.split(cluster, members.size));
    put(healing, this.healing(cluster));
    const rows = worstFirst([...members.values()]);
    put(this.picture, rows.length <= CIRCLES_MAX ? circles(rows) : squares(rows));
    this.members(rows, told);
  }

  split({ split, node }, total) {
    if (!split) return null;
    const here = [node, ...split.with];
    const gone = split.together.map((group) => el("div", { class: "gone" },
      el("h3", {}, `not heard: ${group.names.length} of ${total}`),
      el("p", {}, names(group.names)),
      el("p", {}, "silent together for ", since(group.since)),
      el("p", { class: "quiet" }, "what they do is unknown until they are back")));
    const changes = Math.max(...split.together.map((group) => group.changes));
    return el("section", { class: "box bad", "aria-label": "Split" },
      el("h2", {}, "✕ Split: some members are silent"),
      el("div", { class: "sides" },
        el("div", { class: "here" },
          el("h3", {}, `this side: ${here.length} of ${total}`),
          el("p", {}, names(here)),
          el("p", {}, `${many(changes, "change")} since`)),
        el("p", { class: "cut", "aria-hidden": "true" }, "—//—"),
        gone));
  }

  healing({ healing, node }) {
    if (healing) {
      const done = Math.max(0, healing.total - healing.remaining);
      const part = healing.total > 0 ? Math.floor((100 * done) / healing.total) : 0;
      return el("section", { class: "box warn", "aria-label": "Healing" },
        el("h2", {}, "⟳ Healing, ", since(healing.began)),
        el("p", {}, healing.total > 0
          ? `${node} fetches: ${count(done)} of ${count(healing.total)} changes, ${count(healing.entries)} entries so far`
          : `waiting for ${names(healing.ours)} to fetch for this side`),
        el("progress", { max: 100, value: part, "aria-label": "fetched" }, `${part} %`),
        healing.driver && healing.driver !== node ? el("p", { class: "quiet" }, `${healing.driver} fetches for this side; ${count(healing.driver_remaining)} changes are still missing there`) : null);
    }
    const last = [...this.state.splits.values()].filter((s) => s.ended).pop();
    if (!last || this.state.cluster.split || now() - last.ended > HEALED_MS) return null;
    const how = last.healed_ms === null ? `members are back after ${duration(last.ended - last.began)}` : `healed in ${(last.healed_ms / 1000).toFixed(1)} s`;
    const came = `${count(last.entries)} ${last.entries === 1 ? "entry" : "entries"} came`;
    return el("section", { class: "box good", "aria-label": "Healed" },
      el("p", {}, `● ${how}: ${came}, ${many(last.conflicts, "conflict")} `, last.conflicts > 0 ? el("a", { href: "#conflicts" }, "look") : null));
  }

  /** `told`: when these were, if that is not now. */
  members(rows, told) {
    const isWell = (row) => row.state === "up" && look(row)[2] === 6;
    const few = rows.length <= CIRCLES_MAX;
    const well = few ? [] : rows.filter(isWell);
    const shown = few ? rows : rows.filter((row) => !isWell(row));
    this.fold.hidden = well.length === 0;
    this.fold.textContent = this.unfolded ? `fold ${well.length} up` : `${well.length} up`;
    this.fold.setAttribute("aria-expanded", String(this.unfolded));
    if (this.unfolded) shown.push(...well.slice(0, ROWS_MAX));
    if (!this.body) {
      this.body = el("tbody");
      put(this.table, el("table", {},
        el("caption", {}, "Members, worst first"),
        el("thead", {}, el("tr", {}, HEADS.map((head) => el("th", { scope: "col" }, head)))),
        this.body));
    }
    put(this.body, shown.map((row) => this.row(row, rows.length, told)));
  }

  row(row, total, told) {
    const [sign, kind] = look(row);
    const duties = [row.keeper ? `keeper ${row.keeper}` : "", row.group ? "delete" : ""].filter(Boolean).join(", ");
    const isHere = row.state === "up" || row.state === "self";
    // In networks above 48 nodes most are not linked, for good; in others that passes.
    const ready = !isHere ? "" : row.ready === null ? (total > 48 ? ", readiness not known here" : "") : row.ready ? "" : ", catching up";
    const behind = row.behind === null ? "" : `${count(row.behind)}${row.behind_s > 0 ? `, ${row.behind_s} s` : ""}`;
    const looks = told ? "quiet" : kind === "down" ? "bad" : kind === "odd" ? "warn" : "good";
    const cell = (i, looks, what) => el("td", { class: looks, "data-head": HEADS[i] }, what);
    return el("tr", {},
      el("th", { scope: "row" }, row.name),
      cell(1, looks, `${sign} ${told ? "was " : ""}${row.state}${row.lagging ? ", lagging" : ""}${ready}`),
      cell(2, null, told ? duration(told - row.since) : since(row.since)),
      cell(3, null, behind),
      cell(4, null, duties),
      cell(5, "mono", row.client ?? ""));
  }
}

/** A ring of nodes, linked with this one. */
function circles(rows) {
  const self = rows.find((row) => row.state === "self");
  const order = new Intl.Collator("en", { numeric: true });
  const others = rows.filter((row) => row !== self).sort((a, b) => order.compare(a.name, b.name));
  const picture = svg("svg", { viewBox: `0 0 640 ${others.length > 2 ? 240 : 200}`, role: "img", "aria-label": `${rows.length} nodes; the table below says the same` });
  const place = (i) => {
    const angle = Math.PI * ((i + 0.5) / Math.max(1, others.length));
    return [320 - 260 * Math.cos(angle), 40 + 165 * Math.sin(angle)];
  };
  const lines = [], nodes = [];
  const node = (row, x, y) => {
    const [sign, kind] = look(row);
    nodes.push(svg("g", { class: kind }, svg("circle", { cx: x, cy: y, r: 25 }),
      svg("text", { x, y: y + 5 }, `${sign} ${row.name.length > 8 ? row.name.slice(0, 7) + "…" : row.name}`)));
  };
  others.forEach((row, i) => {
    const [x, y] = place(i);
    lines.push(svg("line", { x1: 320, y1: 40, x2: x, y2: y, class: row.linked ? "" : "none" }));
    const lag = !row.linked ? "no link" : row.behind_s > 0 ? `behind ${row.behind_s} s` : row.behind > 0 ? `behind ${count(row.behind)}` : "";
    if (lag) nodes.push(svg("text", { class: "lag", x: (320 + 1.2 * x) / 2.2, y: (40 + 1.2 * y) / 2.2 }, lag));
    node(row, x, y);
  });
  if (self) node(self, 320, 40);
  picture.append(...lines, ...nodes);
  return picture;
}

/** A square for each node. */
function squares(rows) {
  return el("ul", { class: "squares", "aria-label": `${rows.length} nodes` }, rows.map((row) => {
    const [sign, kind] = look(row);
    return el("li", { class: kind, title: `${row.name}: ${row.state}` }, kind === "up" ? "" : sign, el("span", { class: "unseen" }, `${row.name} ${row.state}`));
  }));
}
