"use strict";
// Text that comes from a run goes into the page by textContent and setAttribute alone, and never as HTML.

const EVERY_MS = 2000, SURE_MS = 4000, OPEN_AT_FIRST = 4;
const KINDS = ["training", "trained again", "saving", "evaluating", "starting", "paused", "down"];
const NS = "http://www.w3.org/2000/svg";
const cards = new Map();
let isLog = true, now = 0;

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

const whole = (value) => (typeof value === "number" ? Math.round(value).toLocaleString("en-US") : "?");

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

const ago = (at) => `${span(Math.max(0, now - at))} ago`;
const clock = (at) => new Date(at * 1000).toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "short" });

// ------------------------------------------------------------------ the curve

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
const ON_AXIS = new Set(["checkpoint", "evaluation", "pause"]);

function star(x, y, r) {
  const point = (i) => [x + (i % 2 ? r / 2.4 : r) * Math.sin((i * Math.PI) / 5), y - (i % 2 ? r / 2.4 : r) * Math.cos((i * Math.PI) / 5)];
  return `M${[...Array(10).keys()].map((i) => point(i).map((v) => v.toFixed(1)).join(" ")).join("L")}z`;
}

function mark(kind, x, y) {
  const drawn = MARKS[kind][1](x, y);
  drawn.setAttribute("class", `m m-${kind}`);
  return drawn;
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
  const step = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= rough);
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}

class Chart {
  constructor() {
    this.title = make("h3", {}, "Curve");
    this.here = make("p", { class: "here", "aria-hidden": "true" });
    this.svg = make("svg:svg", { role: "img", "aria-label": "No curve yet" });
    this.legend = make("ul", { class: "legend" });
    this.element = make("div", { class: "chart" }, make("div", { class: "title" }, this.title, this.here), this.svg, this.legend);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  set(detail) {
    this.detail = detail;
    this.draw();
  }

  draw() {
    const detail = this.detail, width = this.svg.clientWidth, height = this.svg.clientHeight;
    if (!detail || !width) return;
    const points = detail.points.filter(([step, value]) => step !== null && value !== null);
    put(this.title, detail.metric + (detail.complete ? "" : " (still reading)"));
    this.svg.replaceChildren();
    this.legend.replaceChildren();
    if (!points.length) {
      this.svg.setAttribute("aria-label", "No curve yet");
      this.svg.append(make("svg:text", { x: 8, y: 24, class: "tick" }, "No points yet: a run writes one every 10 s."));
      this.map = null;
      return;
    }
    this.map = this.scale(points, detail.moments, width, height);
    this.axes(width, height);
    this.lines(points);
    this.marks(detail.moments, height);
    const [step, value] = points[points.length - 1];
    this.svg.setAttribute("aria-label", `${detail.metric} over steps ${short(points[0][0])} to ${short(step)}: ` +
      `from ${figure(points[0][1])} to ${figure(value)}, ` + (this.counts.join(", ") || "nothing marked"));
  }

  scale(points, moments, width, height) {
    const values = points.flatMap(([, raw, smooth]) => (smooth === null ? [raw] : [raw, smooth]));
    const log = isLog && values.every((value) => value > 0);
    let low = Math.min(...values), high = Math.max(...values);
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 1, high + 1];
    const steps = [...points.map(([step]) => step), ...moments.map((m) => m.step).filter((s) => s !== null)];
    const first = Math.min(...steps), last = Math.max(...steps, first + 1);
    const from = log ? Math.log(low) : low, to = log ? Math.log(high) : high;
    const left = 46, right = width - 8, top = 12, bottom = height - 34;
    return {
      points, log, low, high, first, last, left, right, top, bottom,
      x: (step) => left + ((step - first) / (last - first)) * (right - left),
      y: (value) => bottom - (((log ? Math.log(value) : value) - from) / (to - from)) * (bottom - top),
    };
  }

  axes(width, height) {
    const { low, high, first, last, left, right, bottom, log, x, y } = this.map;
    for (const value of ticks(low, high, 4, log)) {
      this.svg.append(make("svg:line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "grid" }));
      this.svg.append(make("svg:text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", class: "tick" }, figure(value)));
    }
    this.svg.append(make("svg:line", { x1: left, x2: right, y1: bottom + 9, y2: bottom + 9, class: "grid" }));
    for (const step of ticks(first, last, Math.max(2, width / 120), false))
      this.svg.append(make("svg:text", { x: x(step), y: height - 6, "text-anchor": x(step) > right - 20 ? "end" : "middle", class: "tick" }, short(step)));
  }

  lines(points) {
    const { x, y } = this.map;
    const path = (index) => "M" + points.filter((p) => p[index] !== null)
      .map((p) => `${x(p[0]).toFixed(1)} ${y(p[index]).toFixed(1)}`).join("L");
    this.svg.append(make("svg:path", { d: path(1), class: "raw" }), make("svg:path", { d: path(2), class: "smooth" }));
  }

  marks(moments, height) {
    const { x, y, bottom } = this.map;
    this.counts = [];
    for (const [kind, [name]] of Object.entries(MARKS)) {
      const found = moments.filter((moment) => moment.kind === kind && moment.step !== null);
      if (!found.length) continue;
      for (const moment of found) {
        const at = ON_AXIS.has(kind) ? bottom + 9 : y(this.near(moment.step)[2]);
        const drawn = mark(kind, x(moment.step), at);
        drawn.append(make("svg:title", {}, `${name}, step ${whole(moment.step)}${moment.said ? `: ${moment.said}` : ""}`));
        this.svg.append(drawn);
      }
      this.counts.push(`${found.length} × ${name}`);
      const sign = make("svg:svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, mark(kind, 0, { minimum: 6, best: 8 }[kind] ?? 0));
      this.legend.append(make("li", {}, sign, `${name} ${found.length}`));
    }
  }

  near(step) {
    const points = this.map.points;
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < step) low = middle + 1;
      else high = middle;
    }
    return low && step - points[low - 1][0] < points[low][0] - step ? points[low - 1] : points[low];
  }

  point(event) {
    if (!this.map) return;
    const { left, right, first, last, top, bottom, x } = this.map;
    const share = (event.clientX - this.svg.getBoundingClientRect().left - left) / (right - left);
    const [step, value, smooth] = this.near(first + share * (last - first));
    put(this.here, `step ${whole(step)}: ${figure(value)}, smoothed ${figure(smooth)}`);
    this.cross?.remove();
    this.cross = make("svg:line", { x1: x(step), x2: x(step), y1: top, y2: bottom, class: "cross" });
    this.svg.append(this.cross);
  }

  leave() {
    this.cross?.remove();
    put(this.here, "");
  }
}

// ------------------------------------------------------------------ a run

class Card {
  constructor(run, isOpen) {
    this.toggle = make("button", { type: "button" });
    this.phase = make("p", { class: "phase" });
    this.fill = make("span");
    this.cells = Object.fromEntries(["step", "loss", "rate", "left", "saved", "goodput"].map((key) => [key, make("span", { class: "value" })]));
    this.keys = Object.fromEntries(Object.keys(this.cells).map((key) => [key, make("span", { class: "key" }, key)]));
    const cell = (key, ...more) => make("div", { class: `cell ${key}` }, this.keys[key], this.cells[key], ...more);
    this.strip = make("div", { class: "bar", "aria-hidden": "true" });
    this.progress = make("div", { class: "progress", "aria-hidden": "true" }, this.fill);
    this.said = make("p", { class: "said" });
    this.body = make("div", { class: "body", id: `body-${cards.size}` });
    this.toggle.setAttribute("aria-controls", this.body.id);
    this.element = make("article", { class: "run" },
      make("div", { class: "head" }, make("h2", {}, this.toggle), this.phase, cell("step", this.progress), cell("loss"),
        cell("rate"), cell("left"), cell("saved"), cell("goodput", this.strip)),
      this.said, this.body);
    this.fillBody();
    this.toggle.addEventListener("click", () => this.open(this.body.hidden));
    this.isShown = false;
    seen.observe(this.element);
    this.open(isOpen);
    this.update(run);
  }

  fillBody() {
    this.chart = new Chart();
    this.save = make("button", { type: "button" }, "Save now");
    this.pause = make("button", { type: "button" }, "Pause");
    this.answer = make("p", { class: "answer", role: "status" });
    this.bar = make("div", { class: "bar", "aria-hidden": "true" });
    this.shares = make("ul", { class: "legend" });
    this.figures = make("dl", { class: "figures" });
    this.checkpoints = make("ul", { class: "list" });
    this.events = make("ul", { class: "list" });
    this.where = make("p", { class: "quiet answer" });
    const part = (title, ...inside) => make("section", {}, make("h3", {}, title), ...inside);
    this.body.append(
      make("div", { class: "side" }, this.chart.element, part("Events", this.events)),
      make("div", { class: "side" }, make("div", { class: "actions" }, this.save, this.pause, this.answer),
        part("Goodput", this.bar, this.shares), part("Figures", this.figures), part("Checkpoints", this.checkpoints), this.where));
    this.save.addEventListener("click", () => this.ask("save"));
    this.pause.addEventListener("click", () => this.pressPause());
  }

  open(isOpen) {
    this.body.hidden = !isOpen;
    this.toggle.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.load();
  }

  update(run) {
    this.run = run;
    put(this.toggle, run.name);
    put(this.phase, run.phase);
    this.phase.className = `phase ${run.phase}`;
    const [metric, loss] = firstMetric(run.metrics ?? {});
    const end = run.end;
    put(this.keys.loss, metric);
    put(this.cells.step, run.step == null ? "–" : whole(run.step) + (end ? ` of ${whole(end)}` : ""));
    put(this.cells.loss, loss === undefined ? "–" : figure(loss));
    put(this.cells.rate, run.rate ? `${figure(run.rate)} /s` : "–");
    put(this.cells.left, typeof run.left_secs === "number" ? span(run.left_secs) : "–");
    put(this.cells.saved, run.saving != null ? "saving …" : run.checkpoint ? ago(run.checkpoint.at) : "–");
    put(this.cells.goodput, run.goodput?.training === undefined ? "–" : `${run.goodput.training.toFixed(1)} %`);
    this.progress.hidden = !end;
    this.fill.style.width = end ? `${(100 * run.step) / end}%` : "0";
    put(this.said, [run.unread, ...(run.trouble ?? [])].filter(Boolean).join(" · "));
    bar(this.strip, run.goodput ?? {});
    this.save.disabled = this.pause.disabled = !run.running;
    const answer = this.asked && run.answers?.find((each) => each.ids.includes(this.asked));
    if (answer) {
      this.asked = null;
      this.say(answer.error ?? `saved step ${whole(answer.step)}`, answer.error !== null);
    }
    if (!this.body.hidden) this.updateBody(run);
  }

  updateBody(run) {
    bar(this.bar, run.goodput ?? {});
    this.shares.replaceChildren(...KINDS.filter((kind) => run.goodput?.[kind] !== undefined)
      .map((kind) => make("li", {}, make("i", { class: kindClass(kind) }), `${kind} ${run.goodput[kind].toFixed(1)} %`)));
    const figures = Object.entries(run.metrics ?? {}).map(([name, value]) => [name, figure(value)]);
    if (run.memory_bytes && run.running) figures.push(["memory", bytes(run.memory_bytes)]);
    if (run.checkpoint?.seconds != null) figures.push(["last save", `${bytes(run.checkpoint.bytes)} in ${figure(run.checkpoint.seconds)} s`]);
    if (run.steps_again) figures.push(["steps trained again", whole(run.steps_again)]);
    this.figures.replaceChildren(...figures.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    put(this.where, run.logdir);
  }

  async load() {
    if (this.isLoading || this.body.hidden || !this.isShown) return;
    this.isLoading = true;
    try {
      this.updateBody(this.run);
      const text = await get(`${this.run.path}.json`);
      if (text === this.text) return;
      this.text = text;
      const detail = JSON.parse(text);
      this.chart.set(detail);
      this.checkpoints.replaceChildren(...detail.checkpoints.map(checkpoint));
      if (detail.checkpoint_count > detail.checkpoints.length)
        this.checkpoints.append(make("li", { class: "quiet" }, `of ${whole(detail.checkpoint_count)} in all`));
      this.events.replaceChildren(...detail.events.map(event));
      if (!detail.complete) setTimeout(() => this.load(), 50);
    } catch (error) {
      this.say(error.message, true);
    } finally {
      this.isLoading = false;
    }
  }

  pressPause() {
    if (this.pause.classList.toggle("sure")) {
      put(this.pause, "Pause? Press again");
      this.say("Press Pause again to save and stop this run.", false);
      this.unsure = setTimeout(() => { this.forgetPause(); this.say("", false); }, SURE_MS);
    } else {
      this.forgetPause();
      this.ask("pause");
    }
  }

  forgetPause() {
    clearTimeout(this.unsure);
    this.pause.classList.remove("sure");
    put(this.pause, "Pause");
  }

  async ask(what) {
    try {
      const headers = { "Content-Type": "application/json", "X-Trainerd": "1" };
      const answer = await fetch(`${this.run.path}/${what}`, { method: "POST", headers, body: "{}" });
      const found = await answer.json();
      this.asked = found.id || null;
      this.say(found.said ?? found.error, !answer.ok);
    } catch {
      this.say("The watcher does not answer.", true);
    }
  }

  say(text, isWrong) {
    put(this.answer, text);
    this.answer.classList.toggle("wrong", isWrong);
  }
}

function firstMetric(metrics) {
  return "loss" in metrics ? ["loss", metrics.loss] : Object.entries(metrics)[0] ?? ["loss", undefined];
}

const kindClass = (kind) => `k-${kind.replace(" ", "-")}`;

function bar(element, goodput) {
  const kinds = KINDS.filter((kind) => goodput[kind] > 0);
  while (element.children.length > kinds.length) element.lastChild.remove();
  while (element.children.length < kinds.length) element.append(make("span"));
  kinds.forEach((kind, index) => {
    element.children[index].className = kindClass(kind);
    element.children[index].style.width = `${goodput[kind]}%`;
  });
}

function event(found) {
  const step = found.step === null ? "" : ` at step ${whole(found.step)}`;
  return make("li", {}, make("time", {}, clock(found.at)), make("b", {}, found.kind), step, found.said && `: ${found.said}`);
}

function checkpoint(found) {
  const [metric, value] = firstMetric(found.metrics);
  const more = [value === undefined ? "" : `${metric} ${figure(value)}`, found.reason, ...found.marks].filter(Boolean).join(", ");
  return make("li", {}, make("b", {}, `step ${whole(found.step)}`), `: ${more}`);
}

// ------------------------------------------------------------------ all runs

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const card = [...cards.values()].find((each) => each.element === entry.target);
    if (!card) continue;
    card.isShown = entry.isIntersecting;
    card.load();
  }
});
const main = document.getElementById("runs"), match = document.getElementById("match");
const trouble = document.getElementById("trouble"), scale = document.getElementById("scale"), unfold = document.getElementById("unfold");

async function get(path) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store" });
  } catch {
    throw new Error("The watcher does not answer.");
  }
  if (answer.status === 401) location.reload(); // the form for the token
  const text = await answer.text();
  if (!answer.ok) throw new Error(JSON.parse(text).error);
  return text;
}

function show(found) {
  now = found.now;
  const isFirst = !cards.size;
  for (const [name, card] of cards)
    if (!found.runs.some((run) => run.name === name)) {
      seen.unobserve(card.element);
      card.element.remove();
      cards.delete(name);
    }
  found.runs.forEach((run, index) => {
    const isOpen = isFirst && index < OPEN_AT_FIRST;
    if (cards.has(run.name)) cards.get(run.name).update(run);
    else cards.set(run.name, new Card(run, isOpen));
    const { element } = cards.get(run.name);
    if (main.children[index] !== element) main.insertBefore(element, main.children[index] ?? null);
  });
  const shown = found.runs.length < found.count ? `the first ${found.runs.length} of ` : "";
  put(document.getElementById("count"), `${shown}${whole(found.count)} ${found.count === 1 ? "run" : "runs"}, ${whole(found.running)} running`);
  if (!found.runs.length) main.replaceChildren(make("p", { class: "empty" }, match.value ? "No run has that in its name." : "No run is known here. `trainerd run` trains one."));
  else main.querySelector(".empty")?.remove();
}

async function refresh() {
  try {
    show(JSON.parse(await get(`runs.json?match=${encodeURIComponent(match.value)}`)));
    put(trouble, "");
    await Promise.all([...cards.values()].map((card) => card.load()));
  } catch (error) {
    put(trouble, error.message);
  }
}

async function keepUp() {
  if (!document.hidden) await refresh();
  setTimeout(keepUp, EVERY_MS);
}

match.addEventListener("input", refresh);
scale.addEventListener("click", () => {
  isLog = !isLog;
  scale.setAttribute("aria-pressed", String(isLog));
  for (const card of cards.values()) card.chart.draw();
});
unfold.addEventListener("click", () => {
  const isOpen = [...cards.values()].some((card) => card.body.hidden);
  for (const card of cards.values()) card.open(isOpen);
  put(unfold, isOpen ? "Close all" : "Open all");
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());
keepUp();
