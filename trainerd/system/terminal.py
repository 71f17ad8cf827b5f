"""The settings of the terminal: while single keys are read they differ, and any end of the process restores them."""

from __future__ import annotations

import atexit
import contextlib
import os
import termios
import threading
from typing import Any

from trainerd.system.process_wide import process_wide

_LOCAL, _CHARACTERS = 3, 6  # places in the settings, as `termios` has them


class _Kept:
    """The settings of each terminal from before, by its descriptor."""

    def __init__(self) -> None:
        self.settings: dict[int, list[Any]] = {}
        self.is_over, self.process = False, 0
        self.lock = threading.Lock()


_kept = process_wide("terminal", _Kept())


def is_in_foreground(descriptor: int) -> bool:
    """Return whether the terminal is this process's own now. It is the shell's after Ctrl-Z, and `bg`."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # it was closed
        return False


def give_single_keys(descriptor: int) -> None:
    """Have the terminal give each key at once, without an echo, until `restore`. Ctrl-C and Ctrl-Z stay signals.

    Raises:
      termios.error: it is not a terminal, or was closed.
    """
    with _kept.lock:
        settings = termios.tcgetattr(descriptor)
        if _kept.is_over or not settings[_LOCAL] & termios.ICANON:
            return
        if not _kept.settings:
            _kept.process = os.getpid()
            atexit.register(restore)
        _kept.settings.setdefault(descriptor, settings)
        changed = [*settings]
        changed[_LOCAL] = settings[_LOCAL] & ~(termios.ICANON | termios.ECHO)
        changed[_CHARACTERS] = [*settings[_CHARACTERS]]
        changed[_CHARACTERS][termios.VMIN], changed[_CHARACTERS][termios.VTIME] = 1, 0
        termios.tcsetattr(descriptor, termios.TCSANOW, changed)


def restore() -> None:
    """Restore the settings permanently. Any thread may call it, and more than once; a forked child changes nothing."""
    if _kept.process not in (0, os.getpid()):
        return
    with _kept.lock:
        _kept.is_over = True
        for descriptor, settings in _kept.settings.items():
            with contextlib.suppress(OSError, termios.error):
                if is_in_foreground(descriptor):
                    termios.tcsetattr(descriptor, termios.TCSANOW, settings)
        _kept.settings.clear()
