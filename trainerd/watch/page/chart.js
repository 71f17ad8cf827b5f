"use strict";
// Elements, words for numbers, and the charts. Text that comes from a run goes into the page by textContent and
// setAttribute alone, and never as HTML.

const NS = "http://www.w3.org/2000/svg";

// ------------------------------------------------------------------ making elements

function make(tag, attributes = {}, ...children) {
  const made = tag.startsWith("svg:") ? document.createElementNS(NS, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// ------------------------------------------------------------------ words for numbers

const GROUPED = new Intl.NumberFormat("en-US"); // made once: toLocaleString makes one at each call
const whole = (value) => (typeof value === "number" ? GROUPED.format(Math.round(value)) : "?");

function figure(value) {
  if (typeof value !== "number") return "not finite";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e6 || size < 1e-4) ? Number(value.toPrecision(3)).toExponential() : String(Number(value.toPrecision(4)));
}

function span(seconds) {
  if (typeof seconds !== "number") return "?";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60), hours = Math.floor(seconds / 3600);
  if (hours < 2) return `${minutes} min`;
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  for (; count >= 1024 && index < units.length - 1; index++) count /= 1024;
  return `${index ? count.toFixed(1) : count} ${units[index]}`;
}

function short(step) {
  const size = Math.abs(step);
  for (const [unit, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (size >= unit) return `${Number((step / unit).toPrecision(3))}${sign}`;
  return String(Number(step.toPrecision(3)));
}

// ------------------------------------------------------------------ the horizontal axis

/** The axes: a word for a place, and a function of a run's curves that gives the place of a point [step, value, time, mean]. */
const AXES = {
  step: { say: (x) => `step ${whole(x)}`, tick: short, of: () => (point) => point[0] },
  epoch: { say: (x) => `epoch ${figure(x)}`, tick: short, of: epochOf },
  time: { say: (x) => `after ${span(x)}`, tick: span, of: timeOf },
};

/** The epoch of a point, of a run that counts those that have ended; null for others. */
function epochOf(curves) {
  const ends = [[0, 0]];
  for (const [step, epoch] of curves.epoch ?? [])
    if (step > ends[ends.length - 1][0] && epoch > ends[ends.length - 1][1]) ends.push([step, epoch]);
  return ends.length < 2 ? null : (point) => between(ends, point[0]);
}

function timeOf(curves) {
  const first = Math.min(...Object.values(curves).flatMap((points) => points.slice(0, 1).map((point) => point[2])));
  return (point) => point[2] - first;
}

/** The second number at a place, of pairs that are sorted by the first; the last two lead on beyond the end. */
function between(pairs, place) {
  const after = Math.min(Math.max(1, nearest(pairs, place, 0)), pairs.length - 1);
  const index = pairs[after][0] < place && after < pairs.length - 1 ? after + 1 : after;
  const [one, other] = [pairs[index - 1], pairs[index]];
  return one[1] + ((place - one[0]) / (other[0] - one[0])) * (other[1] - one[1]);
}

/** The index of the row whose value in a column is nearest to a place, of rows that are sorted by it. */
function nearest(rows, place, column) {
  let low = 0, high = rows.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle][column] < place) low = middle + 1;
    else high = middle;
  }
  return low && place - rows[low - 1][column] < rows[low][column] - place ? low - 1 : low;
}

/** Smooth values exponentially, as TensorBoard does: without a bias to the first ones. Not finite ones are passed over. */
function smoothed(values, weight) {
  let last = 0, count = 0;
  return values.map((value) => {
    if (value === null) return null;
    last = last * weight + (1 - weight) * value;
    return last / (1 - weight ** ++count);
  });
}

/** Round numbers from low to high; on a logarithmic scale powers of ten, and twice and five times those if they are few. */
function ticks(low, high, wanted, log) {
  const found = [];
  if (log) {
    const digits = high / low > 300 ? [1] : [1, 2, 5];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const digit of digits) {
        const value = digit * 10 ** power;
        if (value >= low && value <= high) found.push(value);
      }
    const stride = Math.ceil(found.length / (wanted + 1));
    if (found.length >= 2) return found.filter((_, index) => index % stride === 0);
    found.length = 0;
  }
  const rough = (high - low) / wanted, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * unit).find((n) => n >= 0.75 * rough);
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}

// ------------------------------------------------------------------ what is marked on a curve

const MARKS = { // a shape of its own for each: color alone is not enough
  checkpoint: ["checkpoint", (x, y) => make("svg:circle", { cx: x, cy: y, r: 3.2 })],
  evaluation: ["evaluation", (x, y) => make("svg:path", { d: `M${x} ${y - 4}l4 4l-4 4l-4 -4z` })],
  minimum: ["minimum of the loss", (x, y) => make("svg:path", { d: `M${x - 5} ${y - 10}h10l-5 8z` })],
  best: ["best", (x, y) => make("svg:path", { d: star(x, y - 8, 6) })],
  crash: ["crash or kill", (x, y) => make("svg:path", { d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10` })],
  pause: ["pause", (x, y) => make("svg:path", { d: `M${x - 2.5} ${y - 5}v10m5 -10v10` })],
  rollback: ["rollback", (x, y) => make("svg:path", { d: `M${x + 5} ${y - 5}v10l-9 -5z` })],
  change: ["change", (x, y) => make("svg:rect", { x: x - 3.5, y: y - 3.5, width: 7, height: 7 })],
};
const ON_AXIS = new Set(["checkpoint", "evaluation", "pause"]); // shown if there is one run: they are many

function star(x, y, r) {
  const point = (i) => [x + (i % 2 ? r / 2.4 : r) * Math.sin((i * Math.PI) / 5), y - (i % 2 ? r / 2.4 : r) * Math.cos((i * Math.PI) / 5)];
  return `M${[...Array(10).keys()].map((i) => point(i).map((v) => v.toFixed(1)).join(" ")).join("L")}z`;
}

function mark(kind, x, y) {
  const drawn = MARKS[kind][1](x, y);
  drawn.setAttribute("class", `m m-${kind}`);
  return drawn;
}

// ------------------------------------------------------------------ a chart

const DRAG = 5, KEY_SHARE = 0.02, X = 0, RAW = 1, SMOOTH = 2, STEP = 3;

/** The curves of one metric. `view` says how all charts are drawn: axis, smooth, log, marks, zoom, cross. */
class Chart {
  constructor(metric, view, changed) {
    Object.assign(this, { metric, view, changed, runs: [], series: [] });
    this.title = make("h2", {}, metric);
    this.here = make("p", { class: "here", "aria-live": "polite" });
    this.svg = make("svg:svg", { role: "img", tabindex: 0, "aria-label": "No curve yet" });
    this.tip = make("div", { class: "tip", "aria-hidden": "true" });
    this.legend = make("ul", { class: "legend" });
    this.element = make("div", { class: "chart" }, make("div", { class: "title" }, this.title, this.here), this.svg, this.tip, this.legend);
    this.tip.hidden = true;
    const on = (name, act) => this.svg.addEventListener(name, act);
    on("pointermove", (event) => this.move(event));
    on("pointerdown", (event) => this.press(event));
    on("pointerup", (event) => this.release(event));
    on("pointerleave", () => this.pressed ?? this.point(null));
    on("dblclick", () => this.zoom(null));
    on("keydown", (event) => this.key(event));
    on("blur", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  /** Show runs: each has a name, a color, its curves, and its moments. */
  set(runs) {
    this.runs = runs;
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth, height = this.svg.clientHeight;
    if (!width) return;
    this.series = this.runs.map((run) => this.rows(run)).filter((series) => series.rows.length);
    this.svg.replaceChildren();
    this.legend.replaceChildren();
    this.map = this.series.length ? this.scale(width, height) : null;
    put(this.title, this.metric + (this.map && this.view.log && !this.map.log ? " (linear, since not all is above 0)" : "")
      + (this.runs.some((run) => !run.complete) ? " (still reading)" : ""));
    if (!this.map) {
      this.svg.setAttribute("aria-label", `${this.metric}: no curve`);
      const why = this.runs.length ? "No points here: a run writes one every 10 s." : "Check a run in the table.";
      this.svg.append(make("svg:text", { x: 8, y: 24, class: "tick" }, why));
      return;
    }
    this.axes(width, height);
    for (const series of this.series) this.lines(series);
    this.said = [];
    if (this.view.marks) this.marks();
    this.cross(this.view.cross);
    const ends = this.series.map(({ run, rows }) => `${run.name} from ${figure(rows[0][RAW])} to ${figure(rows[rows.length - 1][RAW])}`);
    this.svg.setAttribute("aria-label", `${this.metric} by ${this.view.axis}: ${[...ends, ...this.said].join(", ")}`);
  }

  /** The points of a run as rows of x, value, smoothed value, step. */
  rows(run) {
    const place = AXES[this.view.axis].of(run.curves), points = place ? run.curves[this.metric] ?? [] : [];
    const smooth = smoothed(points.map((point) => point[this.view.smooth ? 3 : 1]), this.view.smooth); // of the means
    const rows = points.map((point, index) => [place(point), point[1], smooth[index], point[0]]);
    return { run, rows: rows.filter((row) => row[RAW] !== null && row[X] !== null) };
  }

  scale(width, height) {
    const { zoom, log: isLog } = this.view;
    const rows = this.series.flatMap((series) => series.rows);
    let first = Infinity, last = -Infinity, low = Infinity, high = -Infinity;
    for (const row of rows) {
      first = Math.min(first, row[X]);
      last = Math.max(last, row[X]);
    }
    if (zoom) [first, last] = zoom;
    for (const row of rows)
      if (row[X] >= first && row[X] <= last) {
        low = Math.min(low, row[RAW], row[SMOOTH]);
        high = Math.max(high, row[RAW], row[SMOOTH]);
      }
    if (low > high) [low, high] = [0, 1];
    const log = isLog && low > 0;
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 1, high + 1];
    if (first >= last) last = first + 1;
    const from = log ? Math.log(low) : low, to = log ? Math.log(high) : high;
    const left = 46, right = width - 8, top = 12, bottom = height - 34;
    return {
      log, low, high, first, last, left, right, top, bottom,
      x: (place) => left + ((place - first) / (last - first)) * (right - left),
      y: (value) => bottom - (((log ? Math.log(value) : value) - from) / (to - from)) * (bottom - top),
      place: (x) => first + (Math.min(Math.max(x, left), right) - left) / (right - left) * (last - first),
    };
  }

  axes(width, height) {
    const { low, high, first, last, left, right, bottom, log, x, y } = this.map, { tick } = AXES[this.view.axis];
    for (const value of ticks(low, high, 4, log)) {
      this.svg.append(make("svg:line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "grid" }));
      this.svg.append(make("svg:text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", class: "tick" }, figure(value)));
    }
    this.svg.append(make("svg:line", { x1: left, x2: right, y1: bottom + 9, y2: bottom + 9, class: "grid" }));
    for (const place of ticks(first, last, Math.max(3, width / 110), false))
      this.svg.append(make("svg:text", { x: x(place), y: height - 6, "text-anchor": x(place) > right - 20 ? "end" : "middle", class: "tick" }, tick(place)));
  }

  lines({ run, rows }) {
    const { x, y, first, last } = this.map;
    const seen = rows.filter((row, index) => (rows[index + 1] ?? row)[X] >= first && (rows[index - 1] ?? row)[X] <= last);
    const path = (column) => "M" + seen.map((row) => `${x(row[X]).toFixed(1)} ${y(row[column]).toFixed(1)}`).join("L");
    const inside = make("svg:svg", { x: this.map.left, y: 0, width: this.map.right - this.map.left, height: "100%",
      viewBox: `${this.map.left} 0 ${this.map.right - this.map.left} ${this.svg.clientHeight}` });
    if (this.view.smooth) inside.append(make("svg:path", { d: path(RAW), class: `raw ${run.color}` }));
    inside.append(make("svg:path", { d: path(SMOOTH), class: `smooth ${run.color}` }));
    this.svg.append(inside);
    const value = make("b", {}, figure(rows[rows.length - 1][SMOOTH]));
    this.legend.append(make("li", {}, make("i", { class: run.color }), `${run.name} `, value));
  }

  marks() {
    const { x, y, bottom, first, last } = this.map, isOne = this.series.length === 1;
    for (const [kind, [name]] of Object.entries(MARKS)) {
      if (ON_AXIS.has(kind) && !isOne) continue;
      let count = 0;
      for (const { run, rows } of this.series)
        for (const moment of run.moments.filter((each) => each.kind === kind && each.step !== null)) {
          if (kind === "minimum" && this.metric !== run.main) continue;
          const row = rows[nearest(rows, moment.step, STEP)];
          const place = this.view.axis === "step" ? moment.step : row[X];
          if (place < first || place > last) continue;
          const drawn = mark(kind, x(place), ON_AXIS.has(kind) ? bottom + 9 : y(row[SMOOTH]));
          const said = moment.said ? `: ${moment.said}` : "";
          drawn.append(make("svg:title", {}, `${isOne ? "" : `${run.name}: `}${name}, step ${whole(moment.step)}${said}`));
          this.svg.append(drawn);
          count++;
        }
      if (!count) continue;
      this.said.push(`${count} × ${name}`);
      const sign = make("svg:svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(kind, 0, { minimum: 6, best: 8 }[kind] ?? 0));
      this.legend.append(make("li", {}, sign, `${name} ${count}`));
    }
  }

  // ---------------------------------------------------------------- the crosshair and the zoom

  x(event) {
    return event.clientX - this.svg.getBoundingClientRect().left;
  }

  move(event) {
    if (!this.map) return;
    const x = this.x(event);
    if (this.pressed !== undefined) {
      const [from, to] = [this.pressed, x].sort((a, b) => a - b), { top, bottom } = this.map;
      this.area?.remove();
      this.area = make("svg:rect", { x: from, y: top, width: to - from, height: bottom - top, class: "area" });
      this.svg.append(this.area);
    }
    this.point(this.map.place(x), event);
  }

  press(event) {
    if (!this.map || event.button) return;
    this.pressed = this.x(event);
    this.svg.setPointerCapture(event.pointerId);
  }

  release(event) {
    const from = this.pressed, to = this.x(event);
    this.pressed = undefined;
    this.area?.remove();
    if (from === undefined || Math.abs(from - to) < DRAG) return;
    this.zoom([from, to].map((x) => this.map.place(x)).sort((a, b) => a - b));
  }

  zoom(zoom) {
    this.view.zoom = zoom;
    this.changed();
  }

  key(event) {
    if (!this.map || event.ctrlKey || event.metaKey || event.altKey) return;
    const { first, last } = this.map, width = last - first, cross = this.view.cross ?? (first + last) / 2;
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (side) this.point(Math.min(Math.max(cross + side * width * KEY_SHARE, first), last));
    else if (event.key === "+") this.zoom([cross - width / 4, cross + width / 4]);
    else if (event.key === "-") this.zoom([cross - width, cross + width]);
    else if (event.key === "Escape" || event.key === "0") this.zoom(null);
    else return;
    event.preventDefault();
  }

  /** Put the crosshair of all charts at a place, and show the values there in this one. */
  point(place, event) {
    this.view.cross = place;
    for (const chart of this.view.charts.values()) chart.cross(place);
    this.tip.hidden = place === null || !this.map;
    if (this.tip.hidden) return put(this.here, "");
    const found = this.series.map(({ run, rows }) => [run, rows[nearest(rows, place, X)]]);
    put(this.here, AXES[this.view.axis].say(place));
    this.tip.replaceChildren(...found.sort((a, b) => b[1][SMOOTH] - a[1][SMOOTH]).map(([run, row]) => make("div", {},
      make("i", { class: run.color }), make("b", {}, figure(row[SMOOTH])), this.view.smooth ? ` (${figure(row[RAW])}) ` : " ",
      run.name, make("span", { class: "quiet" }, ` step ${whole(row[STEP])}`))));
    const x = this.map.x(place), isRight = x > (this.map.left + this.map.right) / 2;
    this.tip.style.left = isRight ? "auto" : `${x + 14}px`;
    this.tip.style.right = isRight ? `${this.svg.clientWidth - x + 14}px` : "auto";
    this.tip.style.top = `${this.svg.offsetTop + (event ? Math.max(8, event.clientY - this.svg.getBoundingClientRect().top - 30) : 16)}px`;
  }

  cross(place) {
    this.line?.remove();
    put(this.here, "");
    if (place === null || !this.map || place < this.map.first || place > this.map.last) return;
    const { x, top, bottom } = this.map;
    this.line = make("svg:g", { class: "crosshair" }, make("svg:line", { x1: x(place), x2: x(place), y1: top, y2: bottom, class: "cross" }));
    for (const { run, rows } of this.series) {
      const row = rows[nearest(rows, place, X)];
      if (row[X] >= this.map.first && row[X] <= this.map.last)
        this.line.append(make("svg:circle", { cx: x(row[X]), cy: this.map.y(row[SMOOTH]), r: 3.5, class: `dot ${run.color}` }));
    }
    this.svg.append(this.line);
  }
}
