"""Makes docs/images/watch.png anew, from real runs of the digits: `python -m tests.process.watch_screenshot`."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from tests.process.test_watch_page import COUNT, POINTS, served
from tests.tensorflow.chromium import browser, poll
from tests.waiting import wait_for
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "watch.png"
DIGITS = "trainerd.examples.digits:job"
CONFIG = """\
entry = "{entry}"
logdir = "{name}"
max_steps = {steps}
tags = ["{tag}"]
[checkpoint]
save_model_secs = 8
keep_last = 6
[summary]
metrics_secs = 0.2
save_summaries_secs = 3
[evaluate]
evaluate_secs = 4
"""
RENAME = """
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(arguments[0], arguments[1]);
"""  # of a temporary folder


class Run:
    """A run of the digits in a folder."""

    def __init__(self, folder: Path, name: str, steps: int, entry: str = DIGITS) -> None:
        self.rundir = RunDirectory(folder / name)
        self._config = folder / f"{name}.toml"
        self._config.write_text(
            CONFIG.format(entry=entry, name=name, steps=steps, tag=name.partition("-")[2] or "baseline")
        )
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        command = [sys.executable, "-m", "trainerd", "run", "--config", str(self._config)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def step(self) -> int:
        """Where it is."""
        state = read_state(self.rundir.state)
        return state.step if state is not None and state.phase is Phase.TRAINING else 0

    def end(self, number: int) -> None:
        """End it."""
        self.process.send_signal(number)
        self.process.wait()


@contextlib.contextmanager
def three_runs(folder: Path) -> Iterator[list[Run]]:
    """One that was killed, and trains again; one that has come to its end; one that was paused."""
    shutil.copy(Path(__file__).with_name("jobs.py"), folder)
    digits, valley, paused = (
        Run(folder, "digits", 20_000),
        Run(folder, "digits-rising-rate", 5_000, "jobs:valley"),
        Run(folder, "digits-tuesday", 30_000),
    )
    try:
        wait_for(lambda: digits.step() > 3000, "steps", 300)
        digits.end(signal.SIGKILL)
        digits.start()
        wait_for(lambda: paused.step() > 3500, "steps", 300)
        paused.end(signal.SIGTERM)
        valley.process.wait(300)
        wait_for(lambda: digits.step() > 9_000, "steps", 300)
        yield [digits, valley, paused]
    finally:
        digits.end(signal.SIGTERM)


def main() -> None:
    """Make it."""
    with tempfile.TemporaryDirectory(prefix="runs-") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        with (
            three_runs(folder) as runs,
            served([run.rundir.path for run in runs]) as url,
            browser(folder, height=1000) as tab,
        ):
            tab.open(url)
            poll(lambda: tab.run(COUNT, ".smooth") >= 2 * len(runs) and tab.run(POINTS) > 50, "the curves")
            tab.run(RENAME, name, "/home/me/runs")
            with Image.open(io.BytesIO(tab.screenshot())) as picture:
                few = picture.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
                few.save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
