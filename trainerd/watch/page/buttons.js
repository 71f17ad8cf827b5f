// Buttons that ask the watcher for something, and what it answers.

const SURE_MS = 4000;

/** Ask for something. Returns the answer in words, whether it is an error, and the id of the request if it has one. */
async function post(path) {
  try {
    const headers = { "Content-Type": "application/json", "X-Trainerd": "1" };
    const answer = await fetch(path, { method: "POST", headers, body: "{}" });
    const said = await answer.json();
    return { text: said.said ?? said.error, isWrong: !answer.ok, id: said.id || null };
  } catch {
    return { text: "The watcher does not answer.", isWrong: true, id: null };
  }
}

function sayIn(element, text, isWrong) {
  put(element, text);
  element.classList.toggle("wrong", isWrong);
}

/** A button that acts at its second press. The first one says what the second does. */
class SureButton {
  constructor(word, purpose, act, say) {
    Object.assign(this, { word, purpose, act, say });
    this.element = make("button", { type: "button" }, word);
    this.element.addEventListener("click", () => this.press());
  }

  press() {
    if (this.element.classList.toggle("sure")) {
      put(this.element, `Really ${this.word.toLowerCase()}?`);
      this.say(`Press ${this.word} again to ${this.purpose}.`);
      this.unsure = setTimeout(() => { this.forget(); this.say(""); }, SURE_MS);
    } else {
      this.forget();
      this.act();
    }
  }

  forget() {
    clearTimeout(this.unsure);
    this.element.classList.remove("sure");
    put(this.element, this.word);
  }
}
