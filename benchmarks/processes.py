"""The processes that are measured: started, spoken to, and ended whatever happens."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0  # seconds until a process that says nothing is given up
_TAIL = 4000


class BenchmarkError(Exception):
    """A benchmark could not be run; what it would have measured is not known."""


class Process:
    """`python -m MODULE ARGUMENTS`, whose lines of one stream are read as they come.

    Args:
      arguments: after `python`.
      env: added to this process's environment.
      lines_of: which stream is read by `line`: "stdout" or "stderr". The other is kept for messages.
    """

    def __init__(
        self, arguments: Sequence[str], *, env: Mapping[str, str] | None = None, lines_of: str = "stdout"
    ) -> None:
        self.name = " ".join(arguments)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._seen: list[str] = []
        # Closed by `end`, which is called whatever happens.
        self._kept = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        streams: dict[str, Any] = {"stdout": self._kept, "stderr": self._kept, lines_of: subprocess.PIPE}
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ | dict(env or {}),
            stdin=subprocess.PIPE,
            text=True,
            errors="replace",
            **streams,
        )
        stream = self._process.stdout if lines_of == "stdout" else self._process.stderr
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def line(self) -> str:
        """The next line.

        Raises:
          BenchmarkError: it ended, or says nothing.
        """
        try:
            text = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise self.failure(f"said nothing for {PATIENCE:.0f} s") from None
        if not text:
            raise self.failure(f"ended with exit code {self._process.wait()}")
        self._seen = [*self._seen[-20:], text]
        return text

    def answer(self) -> dict[str, Any]:
        """The next line, as the JSON object that the contract of the peers says it is."""
        text = self.line()
        try:
            return dict(json.loads(text))
        except ValueError:
            raise self.failure(f"said {text!r}, which is no JSON object") from None

    def ask(self, text: str) -> dict[str, Any]:
        """Send one line, and wait for the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self.failure("has ended") from None
        return self.answer()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def pause(self) -> None:
        """End it with SIGTERM, which saves, and wait until it is gone."""
        self.send(signal.SIGTERM)
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise self.failure("did not pause") from None
        if code != 0:
            raise self.failure(f"ended with exit code {code} at a pause")

    def end(self) -> None:
        """End it now, however it is."""
        if not self.is_over:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._kept.close()

    def failure(self, what: str) -> BenchmarkError:
        """An error with the last that the process said."""
        self._kept.seek(0)
        said = "".join(self._seen) + self._kept.read()
        return BenchmarkError(f"{self.name}: {what}\n{said[-_TAIL:]}")

    def _read(self, stream: IO[str]) -> None:
        for text in stream:
            self._lines.put(text)
        self._lines.put("")
        stream.close()
