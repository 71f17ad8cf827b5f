"""A process of `trainerd` that serves all runs of a user: the watcher, or the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class Service:
    """One process of such a command.

    Args:
      command: the command, with its arguments.
      output: the file that it prints to.
      state: the user's state folder.
    """

    def __init__(self, command: Sequence[str], output: Path, state: Path) -> None:
        self.output = output
        with output.open("a") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainerd", *command],
                stdout=file,
                stderr=file,
                env={**os.environ, "XDG_STATE_HOME": str(state)},
            )

    @property
    def text(self) -> str:
        """All that it printed."""
        return self.output.read_text(errors="replace")

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)
