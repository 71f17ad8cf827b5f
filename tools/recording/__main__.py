"""Records what docs/ shows of a terminal, and writes docs/images/NAME.svg."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.recording.picture import picture
from tools.recording.terminal import Terminal

ROOT = Path(__file__).resolve().parent.parent.parent
CTRL_C, CTRL_L = b"\x03", b"\x0c"
FOLDER = Path(tempfile.gettempdir(), "demo")  # its name is in what is recorded
COLUMNS = 96  # the longest message of a start takes them
PROMPT = r"\n\$ $"


def run(terminal: Terminal) -> None:
    """Pause a run with Ctrl-C, and resume it."""
    for seconds in (15.0, 6.0):  # the bars behind the loss need some
        terminal.type("trainerd run")
        terminal.until(r"training +step [\d,]+ of")
        terminal.watch(seconds)
        terminal.press(CTRL_C)
        terminal.until(PROMPT)
        terminal.watch(2.0)


def look(terminal: Terminal) -> None:
    """A run in the background, and what one can ask of it."""
    asked = ("start --forever", "list", "status", "pause --wait", "history")
    for number, command in enumerate(asked):
        if number > 1:
            terminal.press(CTRL_L)
            terminal.watch(0.5)
        terminal.type(f"trainerd {command}")
        terminal.until(PROMPT)
        terminal.watch(6.0 if number == 0 else 2.0)


RECORDINGS: dict[str, tuple[Callable[[Terminal], None], str, int]] = {
    "run": (run, "trainerd run, paused with Ctrl-C; a second trainerd run resumes at the next step", 26),
    "look": (look, "trainerd start, list, status, pause and history, one after the other", 30),
}


def main(names: list[str]) -> None:
    """Make these recordings, or all of them."""
    for name in names or RECORDINGS:
        scene, title, rows = RECORDINGS[name]
        FOLDER.mkdir()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(FOLDER)}
        environment |= {"PS1": "$ ", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        terminal = Terminal(FOLDER, (COLUMNS, rows), environment)
        try:
            scene(terminal)
        finally:
            terminal.close()
            subprocess.run(["trainerd", "pause", "--wait"], cwd=FOLDER, env=environment, check=True)
            shutil.rmtree(FOLDER)
        target = ROOT / "docs" / "images" / f"{name}.svg"
        target.write_text(picture(terminal.frames, COLUMNS, rows, title), encoding="utf-8")
        print(f"{target}: {target.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
