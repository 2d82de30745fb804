// The conflicts that this node has found: both values, and a button that sets the one that was lost. Those of users and
// access lists are in a list of their own, which is empty for whoever is no admin.

import { lines, exact, put as send, remove, Refused } from "./api.js";
import { el, moment, put, count } from "./dom.js";
import { pair } from "./compare.js";
import { fetchEntry, written } from "./entry.js";
import { hash, segments } from "./paths.js";
import { visible } from "./seen.js";

/** So many are shown, the latest first. */
const SHOWN_MAX = 100;
/** The lists, by what they are asked with: of the data, and of the system's own tree. */
const LISTS = ["", "&path=:n"];
/** They are asked for at most this often, or this often if nobody says that there are new ones. */
const ASK_MS = 1000, ASK_ANYWAY_MS = 5000;

/** A conflict as it is told. */
function read(line) {
  const { path, number, winner, loser } = JSON.parse(line);
  winner.text = exact(line, "winner", "value");
  loser.text = exact(line, "loser", "value");
  return { path: segments(path), name: visible(path), number, winner, loser };
}

/** Whether it is a user's record: its value holds the secret, so nobody is shown it, and it cannot be set. */
const isUser = ([root, family, , kind, ...rest]) => root === ":n" && family === "auth" && kind === "user" && rest.length === 1;

/** Who wrote a version, and when. A deletion that was purged has no tock: it is told as 0. */
function origin(label, { chain, tock, time }) {
  const at = moment(time);
  return el("p", { class: "quiet" }, `${label}: written ${written(chain)}`, tock > 0 ? `; tock ${tock}` : "", at ? "; " : "", at ?? "");
}

export class Conflicts {
  constructor(main, state, { say }) {
    Object.assign(this, { state, say, lasts: LISTS.map(() => 0), asked: 0, found: -1, busy: false });
    this.sum = el("p", { class: "quiet" });
    this.list = el("div");
    main.append(el("h1", {}, "Conflicts"), this.sum, this.list);
    this.timer = setInterval(() => this.draw(), ASK_MS);
  }

  close() { clearInterval(this.timer); }

  draw() {
    const { cluster } = this.state;
    const found = cluster?.conflicts ?? null;
    const isNew = found === null ? performance.now() - this.asked > ASK_ANYWAY_MS : found !== this.found;
    if (this.busy || (!isNew && this.asked > 0) || performance.now() - this.asked < ASK_MS && this.asked > 0) return;
    this.ask(found);
  }

  async ask(found) {
    this.busy = true;
    this.asked = performance.now();
    try {
      const lists = await Promise.all(LISTS.map(async (list, i) => (await lines(`/v1/conflicts?limit=${SHOWN_MAX}&since=${this.lasts[i]}${list}`)).map(read)));
      this.found = found;
      // Each list has its own last one: what is found meanwhile may be in the list that was asked for first.
      this.lasts = lists.map((items, i) => Math.max(this.lasts[i], ...items.map((item) => item.number)));
      const items = lists.flat().sort((a, b) => a.number - b.number).slice(-SHOWN_MAX);
      if (items.length > 0) {
        this.list.prepend(...items.slice().reverse().map((item) => this.item(item)));
        while (this.list.children.length > SHOWN_MAX) this.list.lastChild.remove();
        this.say(`${count(items.length)} new ${items.length === 1 ? "conflict" : "conflicts"}`);
      }
      this.sum.textContent = this.told(found, this.list.children.length);
    } catch (error) {
      this.sum.textContent = error.message;
    }
    this.busy = false;
  }

  /** How many there are; `found` is null where the node does not say. */
  told(found, shown) {
    const since = "since the node has started";
    if (found === null && !this.state.mayLook) {
      return `${shown === 0 ? "None" : count(shown)} of those found ${since} ${shown === 1 ? "is" : "are"} shown to you: you are told of entries that your access list lets you read.`;
    }
    const all = found ?? shown;
    if (all === 0) return `None was found ${since}.`;
    const known = `${count(all)} found ${since}. A change was lost in each.`;
    if (shown === 0) return `${known} None is shown: you are told of entries that your access list lets you read; those of users and access lists, below :n, are for admins.`;
    return all > shown ? `${known} Of those that you may read, the latest ${count(shown)} are shown.` : known;
  }

  item({ path, name, winner, loser }) {
    const note = el("div", { role: "group", "aria-label": "Messages" });
    const button = el("button", { type: "button" }, "Set the lost one");
    const tell = (kind, ...what) => put(note, el("div", { class: `box ${kind}` }, ...what));
    const act = async (tag) => {
      button.disabled = true;
      try {
        if (loser.text === null) await remove(path, tag);
        else await send(path, loser.text, tag);
        tell("good", "The lost value is set.");
        this.say(`the lost value of ${name} is set`);
      } catch (error) {
        button.disabled = false;
        if (!(error instanceof Refused) || error.status !== 412) return tell("bad", error.message);
        let now;
        try {
          now = await fetchEntry(path, null);
        } catch (failed) {
          return tell("bad", `The entry has changed since this conflict. Nothing was changed. What it is now could not be read: ${failed.message}`);
        }
        tell("warn", "The entry has changed since this conflict. Nothing was changed.",
          pair("lost", loser.text, "now", now.there ? now.text : null),
          el("p", {}, el("button", { type: "button", onclick: () => act(now.tag) }, "Set it all the same")));
      }
    };
    button.addEventListener("click", () => act(winner.text === null ? "*" : winner.etag));
    return el("article", { class: "box fresh", "aria-label": name },
      el("h2", {}, el("a", { href: hash(path) }, name)),
      pair("kept", winner.text, "lost", loser.text),
      origin("kept", winner), origin("lost", loser),
      note, isUser(path) ? el("p", {}, "A user's record is shown to nobody. Set what should count: distkv-node user.") : el("p", {}, button));
  }
}
