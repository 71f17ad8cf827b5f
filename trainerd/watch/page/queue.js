// The queue: what trains and what waits, in its order, and the buttons of each entry.

const entries = new Map(); // by name

/** A moment in the time of the browser: with its day if that is not today. */
const momentOf = (at) => clock(at).replace(`${clock(now).slice(0, 10)} `, "");

class Entry {
  constructor() {
    const button = (word, what) => {
      const made = make("button", { type: "button" }, word);
      made.addEventListener("click", () => this.ask(what));
      return made;
    };
    const sure = (word, purpose, what) => new SureButton(word, purpose, () => this.ask(what), sayOfQueue);
    this.name = make("button", { type: "button", class: "name" });
    this.stage = make("span");
    this.priority = make("span", { class: "quiet" });
    this.step = make("span");
    this.why = make("span", { class: "why quiet" });
    this.up = button("Move up", "up");
    this.resume = button("Resume", "resume");
    this.pause = sure("Pause", "pause this entry and its run", "pause");
    this.remove = sure("Remove", "remove this entry; its run stays", "remove");
    this.element = make("li", {}, this.name, this.stage, this.priority, this.step, this.why,
      make("div", { class: "actions" }, this.up, this.pause.element, this.resume, this.remove.element));
    this.name.addEventListener("click", () => openRun(this.entry.run, true));
  }

  /** Show an entry; `before` is the one before it. */
  update(entry, before) {
    this.entry = entry;
    put(this.name, entry.name);
    this.name.disabled = !found.runs.some((run) => run.name === entry.run);
    put(this.stage, entry.stage);
    this.stage.className = `phase ${entry.stage}`;
    put(this.priority, `priority ${entry.priority}`);
    put(this.step, entry.step == null ? "" : `step ${whole(entry.step)}${entry.end ? ` of ${whole(entry.end)}` : ""}`);
    const gpus = entry.gpus.length ? `${entry.gpus.length === 1 ? "GPU" : "GPUs"} ${entry.gpus.join(", ")}` : "";
    put(this.why, [gpus, entry.why, entry.until && `until ${momentOf(entry.until)}`].filter(Boolean).join(" · "));
    this.up.disabled = before?.priority !== entry.priority;
    this.pause.element.hidden = entry.resumes;
    this.resume.hidden = !entry.resumes;
    for (const [element, word] of [[this.up, "Move up"], [this.pause.element, "Pause"], [this.resume, "Resume"], [this.remove.element, "Remove"]])
      element.title = `${word}: ${entry.name}`;
  }

  async ask(what) {
    const answer = await post(`${this.entry.path}/${what}`);
    sayOfQueue(answer.text, answer.isWrong);
    await refresh();
  }
}

function sayOfQueue(text, isWrong = false) {
  sayIn(byId("queue-answer"), text, isWrong);
}

function showQueue() {
  const queue = found.queue, list = byId("entries");
  byId("queue").hidden = !(queue?.count || queue?.said.length || byId("queue-answer").textContent);
  const shown = queue?.entries ?? [], names = new Set(shown.map((entry) => entry.name));
  for (const name of entries.keys()) if (!names.has(name)) {
    entries.get(name).element.remove();
    entries.delete(name);
  }
  shown.forEach((entry, index) => {
    if (!entries.has(entry.name)) entries.set(entry.name, new Entry());
    entries.get(entry.name).update(entry, shown[index - 1]);
    const { element } = entries.get(entry.name);
    if (list.children[index] !== element) list.insertBefore(element, list.children[index] ?? null);
  });
  list.hidden = !shown.length;
  put(byId("queue-said"), queue?.said.join(" · ") ?? "");
  put(byId("queue-count"), queue && shown.length < queue.count ? `the first ${shown.length} of ${whole(queue.count)}` : "");
}
