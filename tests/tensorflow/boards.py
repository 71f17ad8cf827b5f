"""`trainerd tensorboard` as a process, and what it serves: through TensorBoard's own loaders, as its page gets it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.tensorflow.chromium import end_group, fetch, poll

# The loaders: rustboard in a process of its own, which is the default, and the one in Python.
LOADERS = {"fast": "--load_fast=true", "slow": "--load_fast=false"}

Points = list[tuple[int, float]]


class Board:
    """A TensorBoard that serves.

    Attributes:
      process: it.
      url: where, with a slash at the end.
    """

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output
        self.url = poll(self._find_url, "TensorBoard to say where it serves")

    @property
    def said(self) -> str:
        """What it has printed."""
        return self._output.read_text()

    def _find_url(self) -> str | None:
        assert self.process.poll() is None, self.said
        found = re.search(r"http://\S+/", self.said)
        return found[0] if found else None

    def get(self, path: str, **query: Any) -> Any:
        """What a path under data/plugin/ answers, as JSON."""
        return json.loads(self.fetch(path, **query))

    def fetch(self, path: str, **query: Any) -> bytes:
        """The same, as it comes."""
        return fetch(f"{self.url}data/plugin/{path}?{urllib.parse.urlencode(query)}")

    def scalars(self, run: str = ".") -> dict[str, Points]:
        """All points of all curves."""
        tags = self.get("scalars/tags").get(run, {})
        return {tag: self.points(tag, run) for tag in tags}

    def points(self, tag: str, run: str = ".") -> Points:
        """The points of one curve: step and value."""
        return [(step, value) for _, step, value in self.get("scalars/scalars", tag=tag, run=run)]

    def steps_of(self, kind: str, tag: str) -> list[int]:
        """The steps that there are images or histograms of."""
        found = self.get(f"{kind}/{kind}", tag=tag, run=".", sample=0)
        return [one["step"] if isinstance(one, dict) else one[1] for one in found]

    def wait_for_step(self, tag: str, step: int) -> None:
        """Wait until the curve has a point of this step."""

        def is_there() -> bool:
            return tag in self.get("scalars/tags").get(".", {}) and any(s == step for s, _ in self.points(tag))

        poll(is_there, f"step {step} of {tag}")


@contextlib.contextmanager
def serving(logdir: Path, output: Path, *more: str) -> Iterator[Board]:
    """Run `trainerd tensorboard` at a free port, with its output in a file, and end it."""
    arguments = [sys.executable, "-m", "trainerd", "tensorboard", "--logdir", str(logdir), "--port", "0", *more]
    with output.open("wb") as file:
        process = subprocess.Popen(arguments, stdout=file, stderr=file, start_new_session=True)
    try:
        yield Board(process, output)
    finally:
        end_group(process)
