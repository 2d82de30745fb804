// Rates of the last ten minutes, and how busy the shards were.

import { el, svg, put, text, count } from "./dom.js";

/** Seconds that the node keeps, and columns of the map. */
const SECONDS = 600, COLUMNS = 120, ROWS = 64;

export class Traffic {
  constructor(main, state) {
    this.state = state;
    this.charts = [];
    this.grid = el("div", { class: "charts" });
    this.canvas = el("canvas", { class: "heat", width: COLUMNS, height: ROWS, role: "img", "aria-label": "requests by shard and time" });
    this.busy = el("p");
    this.none = el("p", { class: "quiet" });
    main.append(el("h1", {}, "Traffic"), this.none, this.grid,
      el("h2", {}, "Requests by shard"), this.canvas, this.busy,
      el("p", { class: "quiet" }, "Each row is 16 of the 1,024 virtual shards; each column 5 s, now on the right."));
  }

  draw() {
    const { names, seconds, columns, mayLook } = this.state;
    text(this.none, mayLook ? "" : "To see the traffic, log in as an operator.");
    if (names.length === 0) return;
    if (this.charts.length !== names.length) {
      this.charts = names.map(([name]) => new Chart(name));
      put(this.grid, this.charts.map((chart) => chart.figure));
    }
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

class Chart {
  constructor(name) {
    this.line = svg("polyline");
    this.now = el("strong");
    this.most = el("span", { class: "quiet" });
    const picture = svg("svg", { viewBox: `0 0 ${SECONDS} 100`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.line);
    this.figure = el("figure", {}, el("figcaption", {}, `${name} `, this.now, " ", this.most), picture);
  }

  draw(numbers, unit) {
    const most = numbers.reduce((a, b) => Math.max(a, b), 0);
    text(this.now, `${short(numbers[numbers.length - 1] ?? 0)} ${unit}`);
    text(this.most, `most ${short(most)}`);
    // At first there is not much to show: then a minute fills the picture.
    const span = Math.max(60, numbers.length), first = span - numbers.length;
    this.line.setAttribute("points", numbers.map((n, i) => `${((first + i) * SECONDS) / span},${(97 - (94 * n) / (most || 1)).toFixed(1)}`).join(" "));
  }
}

function short(n) {
  for (const [size, sign] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (n >= size) return `${(n / (size === 1e4 ? 1e3 : size)).toFixed(1)} ${sign}`;
  }
  return count(n);
}
