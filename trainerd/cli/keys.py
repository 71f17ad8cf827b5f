"""Reads single keys from the terminal while a run trains in the foreground."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator

from trainerd.system import terminal

_LOOK_SECS = 0.2  # after which it is looked whether the terminal is this process's again, as after Ctrl-Z and `fg`


def can_read() -> bool:
    """Return whether keys can be read: standard input and standard error are terminals."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


@contextlib.contextmanager
def keys_read(press: Callable[[str], None], ended: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Call a function with each key that is pressed, on a thread of its own, while the block runs.

    A job that asks for input, as `input()` and the debugger do, gets the terminal back permanently.

    Args:
      press: called with one character.
      ended: called when no more keys are read.
    """
    reader = _KeyReader(sys.stdin.fileno(), press, ended)
    threading.Thread(target=reader.run, name="trainerd-keys", daemon=True).start()
    sys.addaudithook(reader.note_input)
    try:
        yield
    finally:
        reader.close()


class _KeyReader:
    def __init__(self, descriptor: int, press: Callable[[str], None], ended: Callable[[], None]) -> None:
        self._descriptor, self._press, self._ended = descriptor, press, ended
        self._lock = threading.Lock()
        self._is_over = False

    def run(self) -> None:
        """Read until `close`, or until the terminal is gone."""
        # A process in the background that reads from the terminal, or sets it, would be stopped.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN, signal.SIGTTOU})
        with contextlib.suppress(OSError, termios.error):
            while not self._is_over:
                self._press_each(self._read())

    def _read(self) -> str:
        with self._lock:
            if self._is_over:
                return ""
            is_ours = terminal.is_in_foreground(self._descriptor)
            if is_ours:
                terminal.give_single_keys(self._descriptor)
        ready, _, _ = select.select([self._descriptor] * is_ours, [], [], _LOOK_SECS)
        with self._lock:
            if not ready or self._is_over or not terminal.is_in_foreground(self._descriptor):
                return ""
            return os.read(self._descriptor, 64).decode(errors="replace")

    def _press_each(self, keys: str) -> None:
        for key in keys if keys.isprintable() else "":  # an arrow is an escape with letters behind it
            self._press(key)

    def note_input(self, event: str, _: object) -> None:
        """Give the terminal back before the job asks for input."""
        if event == "builtins.input":
            self.close()

    def close(self) -> None:
        """Read no more, and restore the terminal."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                terminal.restore()
                self._ended()
