"""The settings of the terminal: while single keys are read they differ, and any end of the process restores them."""

from __future__ import annotations

import atexit
import contextlib
import os
import termios
from typing import Any

from trainerd.system.process_wide import process_wide

_LOCAL, _CHARACTERS = 3, 6  # places in the settings, as `termios` has them
_kept = process_wide("terminal", dict[int, list[Any]]())


def is_in_foreground(descriptor: int) -> bool:
    """Return whether the terminal is this process's own now. It is the shell's after Ctrl-Z, and `bg`."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # it was closed
        return False


def give_single_keys(descriptor: int) -> None:
    """Have the terminal give each key at once, without an echo. Ctrl-C and Ctrl-Z stay signals.

    Raises:
      termios.error: it is not a terminal, or was closed.
    """
    settings = termios.tcgetattr(descriptor)
    if not settings[_LOCAL] & termios.ICANON:
        return
    if not _kept:
        atexit.register(restore)
    _kept.setdefault(descriptor, settings)
    changed = [*settings]
    changed[_LOCAL] = settings[_LOCAL] & ~(termios.ICANON | termios.ECHO)
    changed[_CHARACTERS] = [*settings[_CHARACTERS]]
    changed[_CHARACTERS][termios.VMIN], changed[_CHARACTERS][termios.VTIME] = 1, 0
    termios.tcsetattr(descriptor, termios.TCSANOW, changed)


def restore() -> None:
    """Restore the settings from before `give_single_keys`. Any thread may call it, and more than once."""
    for descriptor, settings in list(_kept.items()):
        with contextlib.suppress(OSError, termios.error):
            if is_in_foreground(descriptor):
                termios.tcsetattr(descriptor, termios.TCSANOW, settings)
    _kept.clear()
