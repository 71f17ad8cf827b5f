// The table of all runs, the charts of those that are checked, the details of those that are opened. chart.js, buttons.js
// and queue.js are before it.

const EVERY_MS = 2000, STILL_READING_MS = 50, AT_REST_SECS = 30;
const CHECKED_AT_FIRST = 4, MOST_CHECKED = 20, MOST_CHARTS = 24, COLORS = 8;
const KINDS = ["training", "trained again", "saving", "evaluating", "starting", "paused", "down"];
const rows = new Map(), cards = new Map(), details = new Map(), colors = new Map(); // by the name of a run
const view = { charts: new Map(), cross: null };
let now = 0, found = { runs: [] };

const ago = (at) => `${span(Math.max(0, now - at))} ago`;
const clock = (at) => new Date(at * 1000).toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "short" });
const byId = (id) => document.getElementById(id);

// ------------------------------------------------------------------ what is chosen: the URL has it

const chosen = {}; // lists: run, metric, col, open; null until somebody chooses

function readHash() {
  const said = new URLSearchParams(location.hash.slice(1));
  const list = (key) => (said.has(key) ? said.getAll(key).filter(Boolean) : null);
  const number = (key, otherwise) => (Number.isFinite(parseFloat(said.get(key))) ? parseFloat(said.get(key)) : otherwise);
  Object.assign(chosen, { run: list("run"), metric: list("metric"), col: list("col"), open: list("open") });
  chosen.sort = said.get("sort") ?? "";
  chosen.running = said.get("running") === "1";
  match.value = said.get("match") ?? "";
  const zoom = (said.get("zoom") ?? "").split("~").map(parseFloat);
  view.axis = said.get("x") in AXES ? said.get("x") : "step";
  view.smooth = Math.min(Math.max(number("smooth", 0.6), 0), 0.99);
  view.log = said.get("log") !== "0";
  view.marks = said.get("marks") !== "0";
  view.zoom = zoom.length === 2 && zoom[0] < zoom[1] ? zoom : null;
}

function writeHash() {
  const said = new URLSearchParams();
  for (const key of ["run", "metric", "col", "open"])
    for (const each of chosen[key]?.length === 0 ? [""] : chosen[key] ?? []) said.append(key, each);
  const other = {
    sort: chosen.sort, running: chosen.running && "1", match: match.value, x: view.axis !== "step" && view.axis,
    smooth: view.smooth !== 0.6 && String(view.smooth), log: !view.log && "0", marks: !view.marks && "0", zoom: view.zoom?.join("~"),
  };
  for (const [key, value] of Object.entries(other)) if (value) said.set(key, value);
  history.replaceState(null, "", `#${said}`);
}

/** The names of the runs that are checked, of those that the page has. */
function checked() {
  const names = found.runs.map((run) => run.name);
  return chosen.run?.filter((name) => names.includes(name)) ?? names.slice(0, CHECKED_AT_FIRST);
}

const opened = () => chosen.open ?? found.runs.slice(0, 1).map((run) => run.name);

/** All metrics that the page knows, those of the first run first. */
function allMetrics() {
  return [...new Set(found.runs.flatMap((run) => [...Object.keys(run.metrics ?? {}), ...(details.get(run.name)?.metrics ?? [])]))];
}

/** The metrics that have a chart: at first the loss, and the first one of the evaluation. */
function shownMetrics() {
  if (chosen.metric) return chosen.metric.slice(0, MOST_CHARTS);
  const metrics = Object.keys(found.runs.find((run) => checked().includes(run.name))?.metrics ?? {});
  const first = metrics.includes("loss") ? "loss" : metrics[0];
  return [first, metrics.find((metric) => metric.startsWith("val_"))].filter(Boolean);
}

/** Give each checked run a color, the first that no other has; it keeps it for as long as it is checked. */
function giveColors() {
  const names = checked();
  for (const name of colors.keys()) if (!names.includes(name)) colors.delete(name);
  for (const name of names) {
    const taken = new Set(colors.values());
    if (!colors.has(name)) colors.set(name, [...Array(names.length).keys()].find((color) => !taken.has(color)));
  }
}

const colorOf = (name) => `c${colors.get(name) % COLORS}${colors.get(name) < COLORS ? "" : " again"}`;

/** Put a name into a list of the choice, or take it out. */
function toggle(key, present, name, isIn) {
  chosen[key] = isIn ? [...present.filter((each) => each !== name), name] : present.filter((each) => each !== name);
  changed();
}

function changed() {
  writeHash();
  show();
  loadAll();
}

// ------------------------------------------------------------------ the table

/** The columns: a title, what is shown of a run, and the value that is sorted by. */
const COLUMNS = {
  phase: ["phase", (run) => run.phase],
  step: ["step", (run) => (run.step == null ? "" : whole(run.step) + (run.end ? ` of ${whole(run.end)}` : "")), (run) => run.step],
  progress: ["done", (run) => (run.end ? `${Math.floor((100 * run.step) / run.end)} %` : ""), (run) => run.end && run.step / run.end],
  rate: ["rate", (run) => (run.rate ? `${figure(run.rate)} /s` : ""), (run) => run.rate],
  left: ["left", (run) => (typeof run.left_secs === "number" ? span(run.left_secs) : ""), (run) => run.left_secs],
  saved: ["saved", (run) => (run.saving != null ? "saving …" : run.checkpoint ? ago(run.checkpoint.at) : ""), (run) => run.checkpoint?.at],
  copied: ["copied", (run) => (run.copy?.error ? "failing" : run.copy?.at ? ago(run.copy.at) : ""), (run) => run.copy?.at],
  goodput: ["goodput", (run) => (run.goodput?.training === undefined ? "" : `${run.goodput.training.toFixed(1)} %`), (run) => run.goodput?.training],
  memory: ["memory", (run) => (run.running && run.memory_bytes ? bytes(run.memory_bytes) : ""), (run) => run.memory_bytes],
  changed: ["last change", (run) => (run.at ? ago(run.at) : ""), (run) => run.at],
  job: ["job", (run) => run.job ?? ""],
  tags: ["tags", (run) => (run.tags ?? []).join(", ")],
  notes: ["notes", (run) => run.notes ?? ""],
  logdir: ["run directory", (run) => run.logdir],
};
const AT_FIRST = ["phase", "step", "rate", "left", "saved", "goodput", "tags"], TEXTS = ["phase", "job", "tags", "notes", "logdir"];
const METRIC = "metric:";

function column(key) {
  if (key in COLUMNS) return COLUMNS[key];
  const metric = key.slice(METRIC.length);
  const value = (run) => run.metrics?.[metric];
  return [metric, (run) => (value(run) === undefined ? "" : figure(value(run))), value];
}

function columns() {
  const metrics = shownMetrics().map((metric) => METRIC + metric);
  const keys = chosen.col ?? [...AT_FIRST.slice(0, 2), ...metrics, ...AT_FIRST.slice(2)];
  return keys.filter((key) => key in COLUMNS || key.startsWith(METRIC));
}

/** The runs of the table, in its order. Those without a value come last. */
function sortedRuns() {
  const runs = found.runs.filter((run) => run.running || !chosen.running);
  const key = chosen.sort.replace(/^-/, ""), side = chosen.sort.startsWith("-") ? -1 : 1;
  if (!key) return runs;
  const [, text, sorts] = column(key), of = key === "name" ? (run) => run.name : sorts ?? text;
  const isMissing = (value) => value === undefined || value === null || value === "";
  const compare = (one, other) => (typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other);
  return runs.map((run) => [of(run), run]).sort(([one], [other]) =>
    isMissing(one) - isMissing(other) || (isMissing(one) ? 0 : side * compare(one, other))).map(([, run]) => run);
}

function headCell(key, title) {
  const isSorted = chosen.sort.replace(/^-/, "") === key, isDown = chosen.sort.startsWith("-");
  const button = make("button", { type: "button" }, title);
  button.addEventListener("click", () => {
    chosen.sort = !isSorted ? key : isDown ? "" : `-${key}`;
    changed();
    [...byId("head").querySelectorAll("button")].find((each) => each.textContent === title)?.focus();
  });
  const cell = make("th", { scope: "col", class: TEXTS.includes(key) || key === "name" ? "text" : "" }, button);
  if (isSorted) cell.setAttribute("aria-sort", isDown ? "descending" : "ascending");
  return cell;
}

function showHead() {
  const text = JSON.stringify([columns(), chosen.sort]);
  if (showHead.text === text) return;
  showHead.text = text;
  const all = make("input", { type: "checkbox", id: "all", "aria-label": `Compare the first ${MOST_CHECKED} runs, or none` });
  all.addEventListener("change", () => {
    chosen.run = all.checked ? sortedRuns().slice(0, MOST_CHECKED).map((run) => run.name) : [];
    changed();
  });
  byId("head").replaceChildren(make("th", { scope: "col" }, all), headCell("name", "run"), ...columns().map((key) => headCell(key, column(key)[0])));
}

class Row {
  constructor() {
    this.check = make("input", { type: "checkbox" });
    this.name = make("button", { type: "button", class: "name" });
    this.said = make("p", { class: "said" });
    this.element = make("tr");
    this.check.addEventListener("change", () => toggle("run", chosen.run ?? checked(), this.run.name, this.check.checked));
    this.name.addEventListener("click", () => openRun(this.run.name, !opened().includes(this.run.name)));
  }

  /** Show a run. `names` has those that are checked and those that are opened; they are the same for all rows. */
  update(run, keys, names) {
    this.run = run;
    if (this.keys !== keys.join("\n")) {
      this.keys = keys.join("\n");
      this.cells = keys.map((key) => make("td", { class: TEXTS.includes(key) ? "text" : "" }));
      this.element.replaceChildren(make("td", {}, this.check), make("th", { scope: "row" }, this.name, this.said), ...this.cells);
    }
    const isChecked = names.checked.has(run.name);
    this.check.checked = isChecked;
    this.check.className = isChecked ? colorOf(run.name) : "";
    this.check.setAttribute("aria-label", `Compare ${run.name}`);
    this.name.setAttribute("aria-expanded", String(names.opened.has(run.name)));
    put(this.name, run.name);
    put(this.said, troubleOf(run));
    keys.forEach((key, index) => {
      const cell = this.cells[index], [, text] = column(key);
      if (key === "tags") showTags(cell, run.tags ?? []);
      else put(cell, text(run));
      if (key.startsWith(METRIC)) cell.title = measuredAt(run, key.slice(METRIC.length)).trim();
      if (key === "phase") cell.className = `text phase ${run.phase}`;
    });
  }
}

/** Open the details of a run, or close them. */
function openRun(name, isOpen) {
  toggle("open", opened(), name, isOpen);
  if (isOpen) cards.get(name)?.element.scrollIntoView({ block: "nearest" });
}

const troubleOf = (run) => [run.unread, ...(run.trouble ?? [])].filter(Boolean).join(" · ");

function showTags(element, tags) {
  if (element.dataset.tags === tags.join("\n")) return;
  element.dataset.tags = tags.join("\n");
  element.replaceChildren(...tags.map((tag) => {
    const button = make("button", { type: "button", class: "tag", title: "Show the runs that have this" }, tag);
    button.addEventListener("click", () => {
      match.value = match.value === tag ? "" : tag;
      search();
    });
    return button;
  }));
}

function showRows() {
  const runs = sortedRuns(), shown = new Set(runs.map((run) => run.name));
  for (const name of rows.keys()) if (!shown.has(name)) {
    rows.get(name).element.remove();
    rows.delete(name);
  }
  const body = byId("rows"), keys = columns(), names = { checked: new Set(checked()), opened: new Set(opened()) };
  runs.forEach((run, index) => {
    if (!rows.has(run.name)) rows.set(run.name, new Row());
    rows.get(run.name).update(run, keys, names);
    const { element } = rows.get(run.name);
    if (body.children[index] !== element) body.insertBefore(element, body.children[index] ?? null);
  });
  const none = found.count ? "No run is running." : match.value ? "No run has that in its name, job, tags or notes." : "No run is known here. `trainerd run` trains one.";
  put(byId("none"), runs.length ? "" : none);
  byId("table").hidden = !runs.length;
  const first = found.runs.length < found.count ? `the first ${found.runs.length} of ` : "";
  put(byId("count"), `${first}${whole(found.count)} ${found.count === 1 ? "run" : "runs"}, ${whole(found.running)} running`);
}

/** A menu of check boxes, one for each name; it is made anew only when the names have changed. */
function showMenu(id, names, chosenNames, act) {
  const list = byId(id), text = JSON.stringify(names);
  if (list.dataset.names !== text) {
    list.dataset.names = text;
    list.replaceChildren(...names.map(([key, title]) => {
      const box = make("input", { type: "checkbox", value: key });
      box.addEventListener("change", () => act(key, box.checked));
      return make("label", {}, box, ` ${title}`);
    }));
  }
  for (const box of list.querySelectorAll("input")) box.checked = chosenNames.includes(box.value);
}

function showMenus() {
  const metrics = allMetrics();
  const names = [...Object.keys(COLUMNS).map((key) => [key, COLUMNS[key][0]]), ...metrics.map((metric) => [METRIC + metric, metric])];
  showMenu("columns", names, columns(), (key, isIn) => toggle("col", columns(), key, isIn));
  const shown = [...new Set([...metrics, ...shownMetrics()])].map((metric) => [metric, metric]);
  showMenu("metrics", shown, shownMetrics(), (key, isIn) => toggle("metric", shownMetrics(), key, isIn));
}

// ------------------------------------------------------------------ the charts

function showCharts() {
  const metrics = shownMetrics(), place = byId("charts");
  for (const [metric, chart] of view.charts) if (!metrics.includes(metric)) {
    chart.element.remove();
    view.charts.delete(metric);
  }
  metrics.forEach((metric, index) => {
    if (!view.charts.has(metric)) view.charts.set(metric, new Chart(metric, view, changed));
    const { element } = view.charts.get(metric);
    if (place.children[index] !== element) place.insertBefore(element, place.children[index] ?? null);
  });
  for (const name of Object.keys(AXES)) byId(`by-${name}`).checked = view.axis === name;
  byId("smooth").value = view.smooth;
  put(byId("smooth-value"), view.smooth.toFixed(2));
  byId("log").setAttribute("aria-pressed", String(view.log));
  byId("marks").setAttribute("aria-pressed", String(view.marks));
  byId("whole").disabled = !view.zoom;
  byId("compare").hidden = !found.runs.length;
  drawCharts();
}

function drawCharts() {
  const runs = checked().filter((name) => details.get(name)?.curves).map((name) => {
    const { curves, moments, metric, complete } = details.get(name);
    return { name, color: colorOf(name), curves, moments, complete, main: metric };
  });
  const text = JSON.stringify([runs.map((run) => [run.name, run.color, details.get(run.name).text.length, details.get(run.name).at]),
    view.axis, view.smooth, view.log, view.marks, view.zoom, [...view.charts.keys()]]);
  if (drawCharts.text === text) return;
  drawCharts.text = text;
  for (const chart of view.charts.values()) chart.set(runs);
}

// ------------------------------------------------------------------ the details of a run

class Card {
  constructor(run) {
    this.title = make("h2");
    this.shut = make("button", { type: "button" }, "Close");
    this.tags = make("p", { class: "tags" });
    this.notes = make("p", { class: "notes" });
    this.params = make("p", { class: "notes" });
    this.said = make("p", { class: "said" });
    this.save = make("button", { type: "button" }, "Save now");
    this.pause = new SureButton("Pause", "save and stop this run", () => this.ask("pause"), this.say.bind(this));
    this.add = make("button", { type: "button" }, "Add to queue");
    this.answer = make("p", { class: "answer", role: "status" });
    this.bar = make("div", { class: "bar", "aria-hidden": "true" });
    this.shares = make("ul", { class: "legend" });
    this.figures = make("dl", { class: "figures" });
    this.checkpoints = make("ul", { class: "list" });
    this.events = make("ul", { class: "list" });
    this.where = make("p", { class: "quiet answer" });
    const part = (title, ...inside) => make("section", {}, make("h3", {}, title), ...inside);
    this.element = make("article", { class: "run" },
      make("div", { class: "head" }, this.title, this.tags, make("div", { class: "actions" }, this.answer, this.save, this.pause.element, this.add, this.shut)),
      this.said, this.notes, this.params,
      make("div", { class: "body" }, part("Events", this.events), part("Checkpoints", this.checkpoints),
        make("div", { class: "side" }, part("Goodput", this.bar, this.shares), part("Figures", this.figures), this.where)));
    this.save.addEventListener("click", () => this.ask("save"));
    this.add.addEventListener("click", () => this.ask("queue"));
    this.shut.addEventListener("click", () => toggle("open", opened(), this.run.name, false));
    this.update(run);
  }

  update(run) {
    this.run = run;
    put(this.title, run.name);
    put(this.said, troubleOf(run));
    put(this.notes, run.notes ?? "");
    put(this.params, run.params ?? "");
    showTags(this.tags, run.tags ?? []);
    this.save.disabled = this.pause.element.disabled = !run.running;
    this.add.hidden = !found.queue?.can_add.includes(run.name);
    for (const [button, word] of [[this.save, "Save"], [this.pause.element, "Pause"], [this.shut, "Close"]]) button.title = `${word} ${run.name}`;
    const answer = this.asked && run.answers?.find((each) => each.ids.includes(this.asked));
    if (answer) {
      this.asked = null;
      this.say(answer.error ?? `saved step ${whole(answer.step)}`, answer.error !== null);
    }
    bar(this.bar, run.goodput ?? {});
    this.shares.replaceChildren(...KINDS.filter((kind) => run.goodput?.[kind] !== undefined)
      .map((kind) => make("li", {}, make("i", { class: kindClass(kind) }), `${kind} ${run.goodput[kind].toFixed(1)} %`)));
    const figures = Object.entries(run.metrics ?? {}).map(([name, value]) => [name, figure(value) + measuredAt(run, name)]);
    if (run.memory_bytes && run.running) figures.push(["memory", bytes(run.memory_bytes)]);
    if (run.running) figures.push(...(run.devices ?? []).map((device) => [device.name, useOf(device)]));
    if (run.checkpoint?.seconds != null) figures.push(["last save", `${bytes(run.checkpoint.bytes)} in ${figure(run.checkpoint.seconds)} s`]);
    if (run.steps_again) figures.push(["steps trained again", whole(run.steps_again)]);
    this.figures.replaceChildren(...figures.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    put(this.where, [run.job, run.logdir].filter(Boolean).join(" in "));
  }

  set(detail) {
    this.checkpoints.replaceChildren(...detail.checkpoints.map(checkpoint));
    if (detail.checkpoint_count > detail.checkpoints.length)
      this.checkpoints.append(make("li", { class: "quiet" }, `of ${whole(detail.checkpoint_count)} in all`));
    this.events.replaceChildren(...detail.events.map(event));
  }

  async ask(what) {
    const answer = await post(`${this.run.path}/${what}`);
    this.asked = answer.id;
    this.say(answer.text, answer.isWrong);
    if (what === "queue") await refresh();
  }

  say(text, isWrong = false) {
    sayIn(this.answer, text, isWrong);
  }
}

/** The step of a metric, in words, if it is of an earlier one than the present. */
function measuredAt(run, metric) {
  const step = run.measured?.[metric] ?? run.step;
  return step === run.step ? "" : ` at step ${whole(step)}`;
}

/** The memory and the utilization of a device, as far as they are known. */
function useOf(device) {
  const memory = device.memory_total_bytes != null && `${bytes(device.memory_bytes)} of ${bytes(device.memory_total_bytes)}`;
  const busy = device.utilization != null && `${Math.round(100 * device.utilization)} % busy`;
  return [memory, busy].filter(Boolean).join(", ") || "trains";
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

function event(said) {
  const step = said.step === null ? "" : ` at step ${whole(said.step)}`;
  return make("li", {}, make("time", {}, clock(said.at)), make("b", {}, said.kind), step, said.said && `: ${said.said}`);
}

function checkpoint(saved) {
  const [metric, value] = firstMetric(saved.metrics);
  const more = [value === undefined ? "" : `${metric} ${figure(value)}`, saved.reason, ...saved.marks].filter(Boolean).join(", ");
  return make("li", {}, make("b", {}, `step ${whole(saved.step)}`), `: ${more}`);
}

function showCards() {
  const names = opened(), place = byId("details");
  for (const [name, card] of cards) if (!names.includes(name) || !found.runs.some((run) => run.name === name)) {
    card.element.remove();
    cards.delete(name);
  }
  for (const run of found.runs.filter((each) => names.includes(each.name))) {
    if (cards.has(run.name)) cards.get(run.name).update(run);
    else {
      const card = new Card(run);
      cards.set(run.name, card);
      place.append(card.element);
      if (details.has(run.name)) card.set(details.get(run.name));
    }
  }
}

// ------------------------------------------------------------------ reading

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

/** The metrics whose curves are needed of a run: those that have a chart, and what the axis needs. */
function wantedMetrics(run) {
  const wanted = checked().includes(run.name) ? [...shownMetrics(), ...(view.axis === "epoch" ? ["epoch"] : [])] : [];
  const known = new Set([...Object.keys(run.metrics ?? {}), ...(details.get(run.name)?.metrics ?? [])]);
  const metrics = wanted.filter((metric) => known.has(metric));
  return metrics.length ? metrics : [firstMetric(run.metrics ?? {})[0]];
}

/** Read the curves and the events of a run, if there may be news. Returns whether there is more to read at once. */
async function load(run) {
  const query = wantedMetrics(run).map((metric) => `metric=${encodeURIComponent(metric)}`).join("&");
  const before = details.get(run.name), at = JSON.stringify([query, run.at, run.phase]);
  const isNew = run.running || before?.at !== at || !before.complete || now - before.read > AT_REST_SECS;
  if (!isNew) return false;
  const text = await get(`${run.path}.json?${query}`);
  if (text !== before?.text) {
    details.set(run.name, { ...JSON.parse(text), text, at, read: now });
    cards.get(run.name)?.set(details.get(run.name));
  } else Object.assign(before, { at, read: now });
  return !details.get(run.name).complete;
}

async function loadAll() {
  if (loadAll.isRunning) return void (loadAll.isAsked = true);
  loadAll.isRunning = true;
  let isMore = false;
  try {
    const names = new Set([...checked(), ...opened()]);
    for (const run of found.runs.filter((each) => names.has(each.name)))
      try {
        isMore = (await load(run)) || isMore;
        drawCharts();
      } catch (error) {
        if (cards.has(run.name)) cards.get(run.name).say(error.message, true);
        else put(byId("trouble"), `${run.name}: ${error.message}`);
      }
    for (const name of details.keys()) if (!names.has(name)) details.delete(name);
    showMenus();
  } finally {
    loadAll.isRunning = false;
  }
  if (loadAll.isAsked || isMore) setTimeout(loadAll, loadAll.isAsked ? 0 : STILL_READING_MS);
  loadAll.isAsked = false;
}

function show() {
  giveColors();
  showQueue();
  showHead();
  showRows();
  showMenus();
  showCharts();
  showCards();
}

async function refresh() {
  try {
    found = JSON.parse(await get(`runs.json?match=${encodeURIComponent(match.value)}`));
    now = found.now;
    show();
    put(byId("trouble"), "");
    await loadAll();
  } catch (error) {
    put(byId("trouble"), error.message);
  }
}

async function keepUp() {
  if (!document.hidden) await refresh();
  setTimeout(keepUp, EVERY_MS);
}

// ------------------------------------------------------------------ what a person does

const match = byId("match"), running = byId("running");

function search() {
  writeHash();
  refresh();
}

function showChoice() {
  readHash();
  running.setAttribute("aria-pressed", String(chosen.running));
}

/** Have a button turn something of the view, or of the choice, on and off. */
function turns(id, of, key) {
  byId(id).addEventListener("click", () => {
    of[key] = !of[key];
    byId(id).setAttribute("aria-pressed", String(of[key]));
    changed();
  });
}

match.addEventListener("input", search);
turns("running", chosen, "running");
turns("log", view, "log");
turns("marks", view, "marks");
for (const name of Object.keys(AXES))
  byId(`by-${name}`).addEventListener("change", () => {
    Object.assign(view, { axis: name, zoom: null, cross: null });
    changed();
  });
byId("smooth").addEventListener("input", (event) => {
  view.smooth = Number(event.target.value);
  changed();
});
byId("whole").addEventListener("click", () => {
  view.zoom = null;
  changed();
});
byId("metric").addEventListener("input", (event) => {
  for (const label of byId("metrics").children) label.hidden = !label.textContent.toLowerCase().includes(event.target.value.toLowerCase());
});
for (const menu of document.querySelectorAll("details.menu")) {
  document.addEventListener("pointerdown", (event) => menu.contains(event.target) || (menu.open = false));
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}
window.addEventListener("hashchange", () => {
  showChoice();
  refresh();
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());
showChoice();
keepUp();
