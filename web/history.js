// What happened: the splits, and the last events.

import { el, put, clock, count, duration, since, names } from "./dom.js";

export class History {
  constructor(main, state) {
    this.state = state;
    this.splits = el("tbody");
    this.events = el("ol", { class: "events" });
    this.none = el("p", { class: "quiet" });
    const heads = ["began", "length", "silent", "this side", "changes", "healing", "conflicts"];
    main.append(el("h1", {}, "History"),
      el("div", { class: "scroll" }, el("table", {}, el("caption", {}, "Splits, latest first"),
        el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), this.splits)),
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
  return el("tr", {},
    el("td", {}, clock(split.began)),
    el("td", {}, split.ended ? duration(split.ended - split.began) : since(split.began)),
    el("td", {}, names(split.silent, split.silent_count)),
    el("td", {}, names(["this node", ...split.with], 1 + split.with_count)),
    el("td", {}, count(split.changes)),
    el("td", {}, healing),
    el("td", {}, split.conflicts > 0 ? el("a", { href: "#conflicts" }, count(split.conflicts)) : "0"));
}
