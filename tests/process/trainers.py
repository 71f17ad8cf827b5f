"""A trainer in a process of its own, as a test sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.waiting import DEADLINE_SECS, wait_for
from trainerd.checkpoints import catalogue, manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state


class Forkserver:
    """Makes trainers. One for all tests of a worker."""

    def __init__(self) -> None:
        self._started = 0
        script = str(Path(__file__).with_name("forkserver.py"))
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def start(self, folder: Path, rundir: Path | None = None, **request: Any) -> Trainer:
        """Start a command or a program in a folder.

        Args:
          folder: its working directory, which gets a file with what it prints.
          rundir: its run directory; `run` in the folder if it is not given.
          request: `run`, or `program`, `arguments` and `env`; see forkserver.py.
        """
        output = folder / f"output-{self._started}"
        output.touch()
        self._started += 1
        pid = self.ask({"cwd": str(folder), "output": str(output), **request})
        return Trainer(self, pid, RunDirectory(rundir or folder / "run"), output)

    def ask(self, request: dict[str, Any]) -> int:
        """Send a request; its answer."""
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return int(self._answer())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@dataclass
class Trainer:
    """One process that runs a `trainerd` command, or a program."""

    server: Forkserver
    pid: int
    rundir: RunDirectory
    output: Path

    @property
    def text(self) -> str:
        """All that it printed."""
        return self.output.read_text(errors="replace")

    @property
    def state(self) -> State:
        """What it says of itself."""
        found = read_state(self.rundir.state)
        return found if found is not None and found.pid == self.pid else State()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE

    def until(self, what: Callable[[State], bool], name: str) -> State:
        """Wait until its state is so."""

        def look() -> State | None:
            state = self.state
            assert self.is_alive(), f"it ended while the test waited for {name}:\n{self.text}"
            return state if what(state) else None

        return wait_for(look, lambda: f"{name}; it printed:\n{self.text}")

    def until_training(self, step: int = 1) -> State:
        """Wait until it has trained up to a step."""
        return self.until(lambda s: s.phase is Phase.TRAINING and s.step >= step, f"training at step {step}")

    def until_printed(self, pattern: str) -> re.Match[str]:
        """Wait until it has printed something."""
        return wait_for(lambda: re.search(pattern, self.text), lambda: f"{pattern!r} in:\n{self.text}")

    def end(self, seconds: float = DEADLINE_SECS) -> int:
        """Wait until it has ended; its exit code, negative for a signal."""
        wait_for(lambda: not self.is_alive(), lambda: f"the end of:\n{self.text}", seconds)
        return self.server.ask({"reap": self.pid})

    def pause(self) -> int:
        """Pause it with SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.end()


def saved(rundir: RunDirectory) -> list[int]:
    """The steps that have a checkpoint, newest first; every one of them verified."""
    steps = catalogue.resume_order(rundir)
    for step in steps:
        manifest.verify(manifest.read(rundir.manifest(step)), rundir.path)
    return steps


def variables(prefix: Path) -> dict[str, str]:
    """The bytes of every variable of a checkpoint, in hexadecimal digits."""
    import tensorflow as tf  # in a test's own process: the forkserver, which makes the trainers, is another one

    reader = tf.train.load_checkpoint(str(prefix))
    types = reader.get_variable_to_dtype_map()
    names = [name for name, kind in types.items() if kind.is_numpy_compatible and kind not in (tf.string, tf.variant)]
    return {name: reader.get_tensor(name).tobytes().hex() for name in names}


def first_steps(text: str) -> list[int]:
    """The first step of each start that a log tells of."""
    return [int(n) for n in re.findall(r"training(?:; the first step was| from step) (\d+)", text)]
