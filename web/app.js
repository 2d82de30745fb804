// The page: which view is shown, the one stream of events that feeds all of them, and logging in.

import { events, isLoggedIn, isSendable, tryTicket, useTicket, Refused, Unanswered } from "./api.js";
import { el, put, text, tick, since, setClock, now, many } from "./dom.js";
import { Cluster } from "./cluster.js";
import { Data } from "./data.js";
import { Drafts } from "./drafts.js";
import { Conflicts } from "./conflicts.js";
import { Traffic } from "./traffic.js";
import { History } from "./history.js";

/** Rates come once a second; all else is drawn at most this often. */
const DRAW_MS = 250;
/** A screen reader is told at most this often. */
const SAY_MS = 5000;
/** How long to wait before the stream is opened again: at first, and at most. */
const RETRY_MS = [500, 5000];
/** Most events, and seconds of rates, that are kept: as many as the node keeps. */
const EVENTS_MAX = 512, SECONDS_MAX = 600, COLUMNS_MAX = 120;

const views = { cluster: Cluster, data: Data, conflicts: Conflicts, traffic: Traffic, history: History };
const byId = (id) => document.getElementById(id);

/** What a node tells anew on each stream, before it has. */
const untold = () => ({ members: new Map(), events: [], splits: new Map(), seconds: [], latency: [], columns: [] });

/** All that the node has told, and what was typed and not saved. */
export const state = {
  ...untold(), cluster: null, names: [], kinds: [], at: 0, known: 0,
  connected: false, lost: null, mayLook: true, mustLogIn: false, drafts: new Drafts(),
};

let view = null, viewName = "", stream = null, retry = RETRY_MS[0], drawAt = 0, drawing = 0;

// ---- views

function show() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  // Not all that an object has is a view: `constructor`, for one.
  const chosen = Object.hasOwn(views, name) ? name : "cluster";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (state.mustLogIn) {
    put(byId("view"), el("h1", {}, chosen[0].toUpperCase() + chosen.slice(1)), el("p", { class: "quiet" }, "Log in to see what this node knows."));
    return draw();
  }
  if (chosen !== viewName) {
    view?.close?.();
    const hadTraffic = viewName === "traffic", before = viewName;
    viewName = chosen;
    const main = byId("view");
    main.replaceChildren();
    view = new views[chosen](main, state, { say });
    document.title = `${chosen} - distkv`;
    if (before && hadTraffic !== (chosen === "traffic")) open();
    if (before) main.focus();
  }
  view.go?.(rest.map(decoded));
  draw();
}

/** A part of an address that people may have typed. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Draws soon; not more often than people can read. */
function drawSoon() {
  if (drawing) return;
  drawing = setTimeout(() => { drawing = 0; draw(); }, Math.max(0, drawAt + DRAW_MS - performance.now()));
}

function draw() {
  drawAt = performance.now();
  header();
  view?.draw?.();
}

function header() {
  const { cluster, connected, lost } = state;
  text(byId("network"), cluster?.network ?? "distkv");
  text(byId("from"), cluster ? `seen from ${cluster.node}` : "");
  const line = byId("state");
  const notWell = [...state.members.values()].filter((row) => row.lagging || !["self", "up", "left"].includes(row.state)).length;
  if (state.mustLogIn) {
    put(line, el("span", { class: "warn" }, "log in to see what this node knows"));
  } else if (!connected && !lost) {
    put(line, el("span", { class: "quiet" }, "connecting to the node"));
  } else if (!connected) {
    put(line, el("strong", { class: "bad" }, "✕ no connection to the node "), el("span", {}, "for ", since(lost)));
  } else if (!state.mayLook) {
    put(line, el("span", { class: "quiet" }, "the state of the cluster is for operators"));
  } else if (cluster?.split) {
    const oldest = Math.min(...cluster.split.together.map((group) => group.since));
    put(line, el("strong", { class: "bad" }, "! split "), el("span", {}, "for ", since(oldest)));
  } else if (cluster?.healing) {
    put(line, el("strong", { class: "warn" }, "⟳ healing "), el("span", {}, "for ", since(cluster.healing.began)));
  } else if (cluster && cluster.warnings.length > 0) {
    put(line, el("strong", { class: "warn" }, `! ${many(cluster.warnings.length, "warning")}`));
  } else if (cluster && notWell > 0) {
    put(line, el("strong", { class: "warn" }, `! ${many(notWell, "member")} not well`));
  } else if (cluster) {
    put(line, el("span", { class: "good" }, "● all is well"));
  }
  const button = byId("login");
  text(button, isLoggedIn() ? "Log out" : "Log in");
}

// ---- what a screen reader is told

let saidAt = -SAY_MS, waiting = "", sayTimer = 0;

/** Says the latest, at most once in 5 seconds. `instead`: the line to take back; nothing happens if another one has come since. */
export function say(line, instead = waiting) {
  if (waiting !== instead) return;
  waiting = line;
  if (sayTimer) return;
  sayTimer = setTimeout(() => {
    sayTimer = 0;
    saidAt = performance.now();
    text(byId("live"), waiting);
  }, Math.max(0, saidAt + SAY_MS - performance.now()));
}

function sayWhatChanged(before, after) {
  if (!before) return;
  const gone = (cluster) => cluster.split?.together.reduce((sum, group) => sum + group.names.length, 0) ?? 0;
  if (gone(after) > gone(before)) say(`${many(gone(after), "member")} went silent`);
  else if (gone(after) < gone(before)) say(gone(after) === 0 ? "all members are back" : `${gone(after)} still silent`);
  if (!before.healing && after.healing) say("the split is healing");
  if (before.healing && !after.healing) say("the split is healed");
}

// ---- the stream

const on = {
  hello: (data) => setClock(data.now),
  cluster(data) {
    sayWhatChanged(state.cluster, data);
    state.cluster = data;
  },
  members(data) {
    for (const row of data.rows) state.members.set(row.name, row);
    for (const name of data.gone ?? []) state.members.delete(name);
  },
  history(data) {
    state.events.push(...data.events);
    state.events.splice(0, state.events.length - EVENTS_MAX);
    for (const split of data.splits) state.splits.set(split.n, split);
    while (state.splits.size > 64) state.splits.delete(state.splits.keys().next().value);
  },
  rates(data) {
    if (data.names) Object.assign(state, { names: data.names, kinds: data.kinds });
    state.at = data.at;
    state.seconds.push(...data.seconds);
    state.seconds.splice(0, state.seconds.length - SECONDS_MAX);
    state.latency.push(...data.latency);
    state.latency.splice(0, state.latency.length - SECONDS_MAX);
    state.columns.push(...data.columns);
    state.columns.splice(0, state.columns.length - COLUMNS_MAX);
  },
  data: (data) => { state.known = data.known; },
};

function parts() {
  if (!state.mayLook) return "data";
  return viewName === "traffic" ? "cluster,history,data,traffic" : "cluster,history,data";
}

/** Opens the stream; one that is open is closed. */
function open() {
  stream?.abort();
  stream = null;
  if (document.hidden || state.mustLogIn) return;
  const mine = new AbortController();
  stream = mine;
  const again = (error) => {
    if (stream !== mine) return;
    if (state.connected || !state.lost) state.lost = now() - (error instanceof Unanswered ? error.silent : 0);
    state.connected = false;
    drawSoon();
    setTimeout(() => { if (stream === mine) open(); }, retry);
    retry = Math.min(2 * retry, RETRY_MS[1]);
  };
  events(`/v1/live?parts=${parts()}`, (kind, data) => {
    if (stream !== mine) return;
    if (kind === "open") {
      Object.assign(state, untold(), { connected: true, lost: null });
      retry = RETRY_MS[0];
    } else {
      on[kind]?.(data);
      if (kind === "data") view?.changed?.();
    }
    drawSoon();
  }, mine.signal).then(() => again(), (error) => {
    if (stream !== mine || mine.signal.aborted) return;
    if (error instanceof Refused && error.status === 401) {
      endLogin();
    } else if (error instanceof Refused && error.status === 403 && state.mayLook) {
      state.mayLook = false;
      state.cluster = null;
      open();
    } else {
      again(error);
    }
  });
}

// ---- logging in

/** Asks for a login, and says why it does without having been asked to. */
function askForTicket(why = "") {
  const box = byId("login-box");
  text(byId("login-why"), why);
  text(byId("login-error"), "");
  if (!box.open) box.showModal();
  byId("ticket").focus();
}

/** The login that is under way: none once its dialog is closed. */
let loggingIn = null;

async function logIn(event) {
  event.preventDefault();
  const field = byId("ticket"), ticket = field.value.replace(/\s+/g, "");
  const mine = loggingIn = {};
  try {
    if (!isSendable(ticket)) {
      throw new Error(ticket ? "This is no ticket and no token: those have plain letters, digits and signs only. Copy it once more." : "Paste your ticket, or this node's token.");
    }
    await tryTicket(ticket);
  } catch (error) {
    if (loggingIn === mine) text(byId("login-error"), error.message);
    return;
  }
  if (loggingIn !== mine) return;
  useTicket(ticket);
  field.value = "";
  byId("login-box").close();
  startAnew(true);
}

/** Nothing stays that is shown, or was told; nor what was typed and not saved, unless whoever has typed it goes on. */
function forget(keepsDrafts) {
  view?.close?.();
  view = null;
  viewName = "";
  if (!keepsDrafts) state.drafts.clear();
  Object.assign(state, untold(), { cluster: null, connected: false, lost: null, mayLook: true });
  waiting = "";
  text(byId("live"), "");
}

function startAnew(keepsDrafts) {
  forget(keepsDrafts);
  state.mustLogIn = false;
  show();
  open();
}

/** Whether anything was typed and not saved. */
const hasDrafts = () => Boolean(view?.draft) || !state.drafts.isEmpty;

/** The node lets nobody in by this login, or without one. */
function endLogin() {
  const why = !isLoggedIn() ? "Only who logs in may use this node."
    : `This node does not take your login any more: it was ended, or its secret has changed.${hasDrafts() ? " What you had not saved is gone." : ""}`;
  useTicket(null);
  forget(false);
  state.mustLogIn = true;
  show();
  askForTicket(why);
}

byId("login").addEventListener("click", () => {
  if (!isLoggedIn()) return askForTicket();
  useTicket(null);
  startAnew(false);
});
byId("login-form").addEventListener("submit", logIn);
byId("login-no").addEventListener("click", () => byId("login-box").close());
byId("login-box").addEventListener("close", () => { loggingIn = null; });
addEventListener("hashchange", show);
addEventListener("beforeunload", (event) => { if (hasDrafts()) event.preventDefault(); });
document.addEventListener("visibilitychange", open);
setInterval(tick, 1000);
show();
open();
