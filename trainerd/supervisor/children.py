"""What a process that the job forks must not keep: signals, lock and pipes are the trainer's alone.

A worker of `multiprocessing` begins as a copy of the trainer. With its handlers it could not be terminated, a Ctrl-C
would count once for each worker, and with the lock's file it would hold the run directory after the trainer's death.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

_undo: list[Callable[[], None]] = []
_thread = threading.local()


@contextlib.contextmanager
def undone_in_children(undo: Callable[[], None]) -> Iterator[None]:
    """While the block runs, `undo` is called in every child that this process forks, by the child."""
    _undo.append(undo)
    try:
        yield
    finally:
        _undo.remove(undo)


# A signal that reaches the child before it has undone everything would be heard by the trainer: it has to wait.


def _before() -> None:
    _thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _thread.mask)


def _in_child() -> None:
    try:
        while _undo:  # emptied, since a grandchild has nothing left to undo
            _undo.pop()()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, _thread.mask)


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
