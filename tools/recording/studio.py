"""Where recordings are made: the home of a user `me`, with a folder for a run, and shells in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.recording.terminal import Terminal

ROOT = Path(__file__).resolve().parent.parent.parent
IMAGES = ROOT / "docs" / "images"
HOME = Path("/home/me")  # commands print it


@dataclass(frozen=True)
class Studio:
    """A folder, and what the commands in it see.

    Attributes:
      folder: where they run.
      environment: their environment.
    """

    folder: Path
    environment: dict[str, str]

    @contextlib.contextmanager
    def terminal(self, columns: int, rows: int) -> Iterator[Terminal]:
        """Open a shell in the folder, and end it after the block."""
        terminal = Terminal(self.folder, (columns, rows), self.environment)
        try:
            yield terminal
        finally:
            terminal.close()

    def trainerd(self, *arguments: str) -> str:
        """Run a command that is not shown.

        Returns:
          What it printed.
        """
        command = [sys.executable, "-m", "trainerd", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, check=True, stdout=subprocess.PIPE)
        return done.stdout.decode()

    def write(self, name: str, content: str) -> None:
        """Write a file into the folder."""
        (self.folder / name).write_text(content, encoding="utf-8")


@contextlib.contextmanager
def studio(name: str) -> Iterator[Studio]:
    """Make the home and a folder of this name in it, and delete both after the block.

    Raises:
      FileExistsError: there is such a user here.
    """
    HOME.mkdir()
    try:
        (HOME / name).mkdir()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(HOME)}
        environment |= {"PS1": "$ ", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        yield Studio(HOME / name, environment)
    finally:
        shutil.rmtree(HOME)
