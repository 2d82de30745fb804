// What happened: the splits, and the last events.

import { el, put, clock, count, duration, since, names } from "./dom.js";

/** What the columns are. */
const HEADS = ["began", "length", "silent", "this side", "changes", "healing", "conflicts"];

export class History {
  constructor(main, state) {
    this.state = state;
    this.splits = el("tbody");
    this.events = el("ol", { class: "events" });
    this.none = el("p", { class: "quiet" });
    main.append(el("h1", {}, "History"),
      el("div", { class: "scroll" }, el("table", {}, el("caption", {}, "Splits, latest first"),
        el("thead", {}, el("tr", {}, HEADS.map((head) => el("th", { scope: "col" }, head)))), this.splits)),
      this.none, el("h2", {}, "Events, latest first"), this.events);
  }

  draw() {
    const { splits, events, mayLook } = this.state;
    put(this.splits, [...splits.values()].reverse().map(row));
    this.none.textContent = !mayLook ? "To see what happened, log in as an operator." : splits.size === 0 ? "none since the node has started" : "";
    put(this.events, events.slice().reverse().map((event) => el("li", {}, clock(event.at), event.text)));
  }
}

function row(split) {
  const healing = !split.ended ? "lasts" : `${split.healed_ms === null ? "" : `${(split.healed_ms / 1000).toFixed(1)} s, `}${count(split.entries)} came`;
  const cells = [
    clock(split.began),
    split.ended ? duration(split.ended - split.began) : since(split.began),
    names(split.silent, split.silent_count),
    names(["this node", ...split.with], 1 + split.with_count),
    count(split.changes),
    healing,
    split.conflicts > 0 ? el("a", { href: "#conflicts" }, count(split.conflicts)) : "0",
  ];
  return el("tr", {}, cells.map((cell, i) => el("td", { "data-head": HEADS[i] }, cell)));
}
