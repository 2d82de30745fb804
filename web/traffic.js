// How long answers took, and rates, in the last ten minutes; and how busy the shards were.

import { el, svg, put, text, count } from "./dom.js";

/** Seconds that the node keeps, and columns of the map. */
const SECONDS = 600, COLUMNS = 120, ROWS = 64;

export class Traffic {
  constructor(main, state) {
    this.state = state;
    this.charts = [];
    this.grid = el("div", { class: "charts" });
    this.latencies = [];
    this.times = el("div", { class: "charts" });
    this.canvas = el("canvas", { class: "heat", width: COLUMNS, height: ROWS, role: "img", "aria-label": "requests by shard and time" });
    this.busy = el("p");
    this.none = el("p", { class: "quiet" });
    main.append(el("h1", {}, "Traffic"), this.none,
      el("h2", {}, "Latency"), this.times,
      el("p", { class: "quiet" }, "Half of the answers came within the one time (solid line), 99 % within the other (dashed): of the last 10 s. The node times one answer in 16, and all syncs."),
      el("h2", {}, "Rates"), this.grid,
      el("h2", {}, "Requests by shard"), this.canvas, this.busy,
      el("p", { class: "quiet" }, "Each row is 16 of the 1,024 virtual shards; each column 5 s, now on the right."));
  }

  draw() {
    const { names, kinds, seconds, latency, columns, mayLook } = this.state;
    text(this.none, mayLook ? "" : "To see the traffic, log in as an operator.");
    if (names.length === 0) return;
    if (this.charts.length !== names.length) {
      this.charts = names.map(([name]) => new Chart(name));
      put(this.grid, this.charts.map((chart) => chart.figure));
    }
    if (this.latencies.length !== kinds.length) {
      this.latencies = kinds.map((kind) => new Latency(kind));
      put(this.times, this.latencies.map((chart) => chart.figure));
    }
    this.latencies.forEach((chart, i) => chart.draw(latency.map((second) => second[i])));
    this.charts.forEach((chart, i) => chart.draw(seconds.map((second) => second[i]), names[i][1]));
    this.map(columns);
  }

  map(columns) {
    const paint = this.canvas.getContext("2d");
    const most = columns.reduce((most, column) => column.reduce((a, b) => Math.max(a, b), most), 0);
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--focus");
    paint.clearRect(0, 0, COLUMNS, ROWS);
    paint.fillStyle = ink;
    columns.forEach((column, i) => column.forEach((n, row) => {
      if (n === 0) return;
      paint.globalAlpha = 0.15 + (0.85 * Math.log(1 + n)) / Math.log(1 + most);
      paint.fillRect(COLUMNS - columns.length + i, row, 1, 1);
    }));
    const last = columns[columns.length - 1] ?? [];
    const busiest = last.reduce((best, n, row) => (n > (last[best] ?? 0) ? row : best), 0);
    const sum = last.reduce((a, b) => a + b, 0);
    text(this.busy, sum === 0 ? "No requests in the last 5 s." :
      `Last 5 s: ${count(sum)} requests; busiest are the shards ${busiest * 16} to ${busiest * 16 + 15} with ${count(last[busiest])}.`);
  }
}

/** A chart's picture; `lines` are drawn in it. */
const frame = (...lines) => svg("svg", { viewBox: `0 0 ${SECONDS} 100`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...lines);

/** Where a number of one of the last seconds is drawn. At first there is not much to show: then a minute fills the picture. */
function place(i, of, n, most) {
  const span = Math.max(60, of);
  return `${((span - of + i) * SECONDS) / span},${(97 - (94 * n) / (most || 1)).toFixed(1)}`;
}

class Chart {
  constructor(name) {
    this.line = svg("polyline");
    this.now = el("strong");
    this.most = el("span", { class: "quiet" });
    this.figure = el("figure", {}, el("figcaption", {}, `${name} `, this.now, " ", this.most), frame(this.line));
  }

  draw(numbers, unit) {
    const most = numbers.reduce((a, b) => Math.max(a, b), 0);
    text(this.now, `${short(numbers[numbers.length - 1] ?? 0)} ${unit}`);
    text(this.most, `most ${short(most)}`);
    this.line.setAttribute("points", numbers.map((n, i) => place(i, numbers.length, n, most)).join(" "));
  }
}

/** How long one kind of answers took: of each second two times and how many there were, or null. */
class Latency {
  constructor(name) {
    this.half = svg("path");
    this.most = svg("path", { class: "rare" });
    this.now = el("strong");
    this.of = el("span", { class: "quiet" });
    this.figure = el("figure", {}, el("figcaption", {}, `${name} `, this.now, " ", this.of), frame(this.half, this.most));
  }

  draw(seconds) {
    const last = seconds[seconds.length - 1];
    const longest = seconds.reduce((longest, second) => Math.max(longest, second?.[1] ?? 0), 0);
    text(this.now, last ? `${duration(last[0])}, ${duration(last[1])}` : "none");
    text(this.of, `${last ? `of ${count(last[2])}; ` : ""}${longest > 0 ? `longest ${duration(longest)}` : ""}`);
    for (const [line, which] of [[this.half, 0], [this.most, 1]]) {
      // A line is broken where there was nothing.
      const points = seconds.map((second, i) => (second ? `${seconds[i - 1] ? "L" : "M"}${place(i, seconds.length, second[which], longest)}` : ""));
      line.setAttribute("d", points.join(""));
    }
  }
}

/** Microseconds, for people. */
function duration(us) {
  if (us < 1e3) return `${us} µs`;
  const [n, unit] = us < 1e6 ? [us / 1e3, "ms"] : [us / 1e6, "s"];
  return `${n.toFixed(n < 10 ? 1 : 0)} ${unit}`;
}

function short(n) {
  for (const [size, sign] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (n >= size) return `${(n / (size === 1e4 ? 1e3 : size)).toFixed(1)} ${sign}`;
  }
  return count(n);
}
