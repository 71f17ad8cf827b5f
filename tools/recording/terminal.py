"""A shell in a terminal that is typed into, and what its screen shows as time goes by."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyte

from tools.recording.picture import Frame, Row, Style

CTRL_C, CTRL_L = b"\x03", b"\x0c"
PROMPT = r"\n\$ $"
KEY_SECS = 0.05
DEADLINE_SECS = 120.0


@dataclass
class Terminal:
    """A bash of its own in a folder.

    Args:
      folder: where it begins.
      size: columns and rows.
      environment: what its commands see.
    """

    folder: Path
    size: tuple[int, int]
    environment: Mapping[str, str]
    frames: list[tuple[float, Frame]] = field(default_factory=list)

    def __post_init__(self) -> None:
        columns, rows = self.size
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(self.folder)
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], dict(self.environment))
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._lock, self._is_closing = threading.Lock(), False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.until(r"\$ $")

    def type(self, line: str) -> None:
        """Type a line as a person does, and press Enter."""
        self.write(line)
        self.watch(0.4)
        self.press(b"\n")

    def write(self, line: str) -> None:
        """Type a line as a person does."""
        for letter in line:
            self.press(letter.encode())
            self.watch(KEY_SECS)

    def press(self, key: bytes) -> None:
        """Press one key, such as Ctrl-C."""
        os.write(self._terminal, key)

    def until(self, pattern: str, deadline_secs: float = DEADLINE_SECS) -> None:
        """Watch until the screen's text has this, or its last line where the pattern ends in `$`.

        Raises:
          TimeoutError: it never has.
        """
        deadline = time.monotonic() + deadline_secs
        while not re.search(pattern, self.text()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {pattern!r} in\n{self.text()}")
            self.watch(0.05)

    def watch(self, seconds: float) -> None:
        """Let so much time pass. What is shown is taken in all the time."""
        time.sleep(seconds)

    def text(self) -> str:
        """Return what is on the screen, up to the cursor's line."""
        with self._lock:
            display, cursor = self._screen.display, self._screen.cursor
            lines = [line.rstrip() for line in display[: cursor.y + 1]]
            return "\n".join([*lines[:-1], display[cursor.y][: cursor.x]])

    def close(self) -> None:
        """End the shell."""
        self._is_closing = True  # a shell that is ended says so, which is not shown
        os.kill(self._pid, signal.SIGHUP)
        os.waitpid(self._pid, 0)
        self._reader.join()
        os.close(self._terminal)

    def _read(self) -> None:
        """Take in what is shown until the shell has ended."""
        with contextlib.suppress(OSError):  # which a terminal without programs answers
            while (shown := os.read(self._terminal, 65536)) and not self._is_closing:
                with self._lock:
                    self._stream.feed(shown)
                    self.frames.append((time.monotonic(), self._frame()))

    def _frame(self) -> Frame:
        return tuple(self._row(y) for y in range(self._screen.lines))

    def _row(self, y: int) -> Row:
        """A row in parts of one style, without what is blank at its end."""
        parts: list[tuple[Style, str]] = []
        for x in range(self._screen.columns):
            character = self._screen.buffer[y][x]
            style = Style(character.bg if character.reverse else character.fg, character.bold)
            if parts and (parts[-1][0] == style or character.data == " "):
                parts[-1] = (parts[-1][0], parts[-1][1] + character.data)
            else:
                parts.append((style, character.data))
        while parts and not parts[-1][1].strip():
            parts.pop()
        return (*parts[:-1], (parts[-1][0], parts[-1][1].rstrip())) if parts else ()
