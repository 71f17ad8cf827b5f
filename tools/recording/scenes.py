"""The recordings of one terminal."""

from __future__ import annotations

from tools.recording.picture import picture
from tools.recording.studio import IMAGES, studio
from tools.recording.terminal import CTRL_C, CTRL_L, PROMPT

COLUMNS = 96  # the longest message of a start takes them


def run() -> None:
    """Pause a run with Ctrl-C, and resume it."""
    rows, title = 26, "trainerd run, paused with Ctrl-C; a second trainerd run resumes at the next step"
    with studio("demo") as made:
        with made.terminal(COLUMNS, rows) as terminal:
            for seconds in (15.0, 6.0):  # the bars behind the loss need some
                terminal.type("trainerd run")
                terminal.until(r"training +step [\d,]+ of")
                terminal.watch(seconds)
                terminal.press(CTRL_C)
                terminal.until(PROMPT)
                terminal.watch(2.0)
        (IMAGES / "run.svg").write_text(picture(terminal.frames, COLUMNS, rows, title), encoding="utf-8")


def look() -> None:
    """A run in the background, and what one can ask of it."""
    rows, title = 30, "trainerd start, list, status, pause and history, one after the other"
    with studio("demo") as made:
        with made.terminal(COLUMNS, rows) as terminal:
            for number, command in enumerate(("start --forever", "list", "status", "pause --wait", "history")):
                if number > 1:
                    terminal.press(CTRL_L)
                    terminal.watch(0.5)
                terminal.type(f"trainerd {command}")
                terminal.until(PROMPT)
                terminal.watch(6.0 if number == 0 else 2.0)
        (IMAGES / "look.svg").write_text(picture(terminal.frames, COLUMNS, rows, title), encoding="utf-8")
