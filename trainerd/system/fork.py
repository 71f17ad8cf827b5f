"""Processes that the job forks: they keep neither signal handlers, lock nor pipes of the trainer.

A worker of `multiprocessing` begins as a copy of the trainer. With its handlers it could not be terminated, a Ctrl-C
would count once for each worker, and with the lock's file it would hold the run directory after the trainer's death.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn

from trainerd.system.process_wide import process_wide, within

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)

_undo = process_wide("undone in children", list[Callable[[], None]]())
_thread = process_wide("forking", threading.local())


def undone_in_children(undo: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """Have every child that this process forks call `undo`, while the block runs."""
    return within(_undo, undo)


def ends_with_parent(parent: int) -> Callable[[], None]:
    """Return a function that makes a child end with its parent, since a worker waits forever for a killed parent.

    Linux sends the signal when the thread that made the child ends. Threads other than the main one may end long before
    the process, so their children are left alone.

    Args:
      parent: the process that makes children.
    """

    def end_with_it() -> None:
        if _thread.is_main and _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0 and os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)  # it has ended in between

    return end_with_it


# A signal that reaches the child before it has undone everything would be heard by the trainer: it has to wait.


def _before() -> None:
    _thread.is_main = threading.current_thread() is threading.main_thread()
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


@contextlib.contextmanager
def ended_in_children() -> Iterator[None]:
    """End a child that is forked in the block when it leaves the block, by an error, an exit, or the block's end.

    What follows is the trainer's work, and would hang in a child, which has none of the trainer's threads.
    """
    trainer = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() == trainer:
            raise
        _end(error)
    if os.getpid() != trainer:
        _end(SystemExit(0))


def _end(error: BaseException) -> NoReturn:
    """End this process as Python would, without waiting for a lock that a thread of the trainer may hold."""
    code = 1
    try:
        if not isinstance(error, SystemExit):
            os.write(2, "".join(traceback.format_exception(error)).encode(errors="replace"))
        elif isinstance(error.code, int | None):
            code = (error.code or 0) & 0xFF
        else:
            os.write(2, f"{error.code}\n".encode(errors="replace"))
        sys.stdout.flush()
    finally:
        os._exit(code)
