"""Who hears of a signal in this process: the daemon, where it is one, and every session that is open.

A session inside another one's loop, or beside it, must not keep a signal from it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from trainerd.supervisor.children import undone_in_children
from trainerd.supervisor.flag import Flag, Request
from trainerd.supervisor.signals import SignalThread, die_of, handled, terminal_check


class DaemonFlag(Flag):
    """The daemon's: whatever asks the daemon to pause asks the sessions that its program has open, too.

    Attributes:
      has_program: whether it runs a program with a loop of its own. What a job opens, to evaluate for one, is not cut
        short.
      was_heard: whether a session was asked that is not the daemon's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_program = self.was_heard = False

    def raise_for(self, request: Request) -> None:
        """See `Flag.raise_for`."""
        super().raise_for(request)
        if request is Request.PAUSE and self.has_program:
            for flag in {*_listeners.sessions} - {self}:
                self.was_heard = True
                flag.raise_for(request)


class _Listeners:
    """The flags that a signal raises.

    Attributes:
      daemon: the daemon's; None where the process is a program's own.
      sessions: those of the sessions that are open; the daemon's again where it looks after one.
      was_told_to_pause: whether a pause was asked for that nobody has asked about since.
    """

    def __init__(self) -> None:
        self.daemon: DaemonFlag | None = None
        self.sessions: list[Flag] = []
        self.was_told_to_pause = False

    @property
    def flags(self) -> set[Flag]:
        """Those that are raised, each once."""
        if self.daemon is None:
            return {*self.sessions}
        return {self.daemon, *self.sessions} if self.daemon.has_program else {self.daemon}

    def raise_for(self, request: Request) -> None:
        """Raise them all. Where a pause finds none to raise, the process ends, as without handlers."""
        flags = self.flags
        if request is Request.PAUSE and not flags:
            die_of(signal.SIGTERM)
        self.was_told_to_pause = self.was_told_to_pause or request is Request.PAUSE
        for flag in flags:
            flag.raise_for(request)

    def forget(self) -> None:
        """There is nobody any more, and nothing was asked for."""
        self.daemon, self.sessions, self.was_told_to_pause = None, [], False


_listeners = _Listeners()


def were_told_to_pause() -> bool:
    """Whether a program was told to since this was last asked. While a session is open, that one is told."""
    if _listeners.daemon is not None and not _listeners.daemon.has_program:
        return False
    was_told = not _listeners.sessions and _listeners.was_told_to_pause
    if was_told:
        _listeners.was_told_to_pause = False
    return was_told


@contextlib.contextmanager
def daemon_listens(flag: DaemonFlag) -> Iterator[None]:
    """Have signals raise the daemon's flag while the block runs, and those of the sessions that a program opens."""
    _listeners.daemon = flag
    try:
        with _handled():
            yield
    finally:
        _listeners.daemon, _listeners.was_told_to_pause = None, False


@contextlib.contextmanager
def lent_session_listens(flag: Flag) -> Iterator[None]:
    """While the block runs, a session is open that the daemon looks after."""
    _listeners.sessions.append(flag)
    try:
        yield
    finally:
        if flag in _listeners.sessions:
            _listeners.sessions.remove(flag)


@contextlib.contextmanager
def session_listens(flag: Flag) -> Iterator[None]:
    """Have SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 raise a session's flag, while the block runs.

    Python lets the main thread alone handle signals: on another one nothing changes. Where the block ends on another
    one than it began on, the handlers stay, and a signal does what it does to a process without them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_first = not _listeners.flags
    _listeners.sessions.append(flag)
    try:
        with _handled() if is_first else contextlib.nullcontext():
            yield
    finally:
        if flag in _listeners.sessions:  # a child that was forked has forgotten it
            _listeners.sessions.remove(flag)


@contextlib.contextmanager
def _handled() -> Iterator[None]:
    thread = SignalThread(_listeners, terminal_is_gone=terminal_check())
    with undone_in_children(_listeners.forget), handled(thread):
        yield
