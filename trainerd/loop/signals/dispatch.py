"""Passes signals to the daemon, if this process is one, and to every open session.

A session inside another one's loop, or beside it, must not keep a signal from it.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator

from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import Paused
from trainerd.loop.signals.handlers import SignalThread, exit_by_signal, handled, terminal_check
from trainerd.system.fork import undone_in_children
from trainerd.system.process_wide import process_wide

log = logging.getLogger(__name__)


class DaemonFlag(Flag):
    """The daemon's flag: a pause request also reaches the sessions that its program has open.

    Attributes:
      has_program: whether it runs a program with its own loop. A session that a job opens, such as for an evaluation,
        is not cut short.
      was_heard: whether the request has reached a session that is not the daemon's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_program = self.was_heard = False

    def reach_sessions(self) -> None:
        """Have pause requests reach the sessions of the program that the daemon runs from now on."""
        self.has_program = True

    def raise_for(self, request: Request, by: str = "") -> None:
        """See `Flag.raise_for`."""
        super().raise_for(request, by)
        if request is Request.PAUSE and self.has_program:
            _listeners.is_pause_pending = True
            for flag in {*_listeners.sessions} - {self}:
                self.was_heard = True
                flag.raise_for(request, by)


class _Listeners:
    """The flags that a signal raises.

    Attributes:
      daemon: the daemon's; None if the process is a program's own.
      sessions: the flags of the open sessions; the daemon's again if it manages one.
      mains: the flags of those that were opened on the main thread.
      is_interruptible: whether the main thread is in the program's own code, outside of its calls of `fit`.
      is_interrupting: whether `Paused` is to be raised there.
      is_pause_pending: whether there was a pause request that no `take_pause` has consumed since.
      handlers: what undoes the handlers of signals; None if there are none.
      thread: reads the signals; None before there were handlers.
      renew: puts back handlers that were replaced, and returns the numbers of their signals.
    """

    def __init__(self) -> None:
        self.daemon: DaemonFlag | None = None
        self.sessions: list[Flag] = []
        self.mains: list[Flag] = []
        self.is_pause_pending = self.is_interruptible = self.is_interrupting = False
        self._paused_by = ""
        self.handlers: contextlib.ExitStack | None = None
        self.thread: SignalThread | None = None
        self.renew: Callable[[], list[int]] = list
        self._inherited: list[contextlib.ExitStack] = []

    @property
    def flags(self) -> set[Flag]:
        """All flags, each once."""
        if self.daemon is None:
            return {*self.sessions}
        return {self.daemon, *self.sessions} if self.daemon.has_program else {self.daemon}

    def raise_for(self, request: Request, by: str = "") -> None:
        """Raise all flags. If a pause finds none, the process ends, as without handlers."""
        if request is Request.PAUSE:
            self._paused_by = by
        if request is Request.PAUSE and (self.daemon is None or self.daemon.has_program):
            self.is_pause_pending = True  # first: a flag that is added from now on checks it
        flags = self.flags
        if request is Request.PAUSE and not flags:
            exit_by_signal(signal.SIGTERM)
        for flag in flags:
            flag.raise_for(request, by)

    def add(self, flag: Flag) -> None:
        """Add the flag of an open session. It is raised if a pause was requested meanwhile."""
        self.sessions.append(flag)
        if self.is_pause_pending:
            flag.raise_for(Request.PAUSE, self._paused_by)

    def remove(self, flag: Flag) -> None:
        """Remove the flag of a session that has ended; a forked child has none."""
        for flags in (self.sessions, self.mains):
            if flag in flags:
                flags.remove(flag)

    def handle(self) -> None:
        """Handle signals from now on, until `unhandle`."""
        if self.handlers is None:
            with contextlib.ExitStack() as stack:
                stack.enter_context(undone_in_children(self.forget))
                self.thread = SignalThread(self.raise_for, terminal_is_gone=terminal_check())
                self.renew = stack.enter_context(handled(self.thread, self._in_python))
                self.handlers = stack.pop_all()

    def _in_python(self, number: int) -> None:
        """Raise `Paused` in the program, if it is to be interrupted. Otherwise the thread does all."""
        if self.is_interrupting and self.is_interruptible:
            self.is_interrupting = self.is_interruptible = False
            raise Paused

    def unhandle(self) -> None:
        """Put back the handlers from before."""
        handlers, self.handlers = self.handlers, None
        if handlers is not None:
            handlers.close()

    def forget(self) -> None:
        """Clear everything in a forked child: it has no sessions and no requests, and its handlers are undone
        already."""
        if self.handlers is not None:
            self._inherited.append(self.handlers)  # kept: it would undo itself when it is collected
        self.handlers = None
        self.daemon, self.sessions, self.mains, self.is_pause_pending = None, [], [], False
        self.is_interruptible = False


_listeners = process_wide("listeners", _Listeners())


def take_pause() -> bool:
    """Consume a pause request. Return whether a program got one since the last call. Open sessions get it directly."""
    return not _listeners.sessions and forget_pause()


def is_pause_pending() -> bool:
    """Return whether there is a pause request that a session which is being made has not served."""
    return _listeners.is_pause_pending


def interruptible(yes: bool) -> None:
    """Record that the main thread is in the program's own code now, outside of its calls of `fit`; or is not."""
    _listeners.is_interrupting = False
    _listeners.is_interruptible = yes


def interrupt_program() -> None:
    """Raise `Paused` in the program's own code on the main thread, as Python raises a KeyboardInterrupt.

    It is raised once. Nothing is done in a call of `fit`, or while it ends: the caller asks again and again. Nothing is
    done either if the main thread has ended: Python waits for other threads then, and calls what `atexit` has.
    """
    main = threading.main_thread()
    if _listeners.is_interruptible and not _listeners.is_interrupting and main.is_alive():
        _listeners.is_interrupting = True
        signal.pthread_kill(main.ident or 0, signal.SIGUSR1)


def renew_handlers() -> None:
    """Put back the handlers that a job has replaced: without them a signal kills instead of pausing."""
    if _listeners.handlers is None or threading.current_thread() is not threading.main_thread():
        return
    if replaced := _listeners.renew():
        log.warning(
            "the job replaced trainerd's signal handlers for %s. trainerd has set its own again",
            ", ".join(signal.Signals(number).name for number in replaced),
            extra={"event": "signal"},
        )


def forget_pause() -> bool:
    """Continue although a pause was requested. Return whether one was."""
    was_pending, _listeners.is_pause_pending = _listeners.is_pause_pending, False
    if was_pending and _listeners.thread is not None:
        _listeners.thread.forget_stop()
    return was_pending


@contextlib.contextmanager
def daemon_listens(flag: DaemonFlag) -> Iterator[None]:
    """Have signals raise the daemon's flag, and those of a program's open sessions, while the block runs."""
    _listeners.daemon = flag
    try:
        _listeners.handle()
        yield
    finally:
        _listeners.unhandle()
        _listeners.daemon, _listeners.is_pause_pending = None, False


@contextlib.contextmanager
def lent_session_listens(flag: Flag) -> Iterator[None]:
    """Count a session that the daemon manages as open while the block runs."""
    renew_handlers()
    _listeners.sessions.append(flag)
    try:
        yield
    finally:
        _listeners.remove(flag)


@contextlib.contextmanager
def session_listens(flag: Flag) -> Iterator[None]:
    """Have SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 raise a session's flag while the block runs.

    Only Python's main thread may set handlers: its sessions install them until the last of them has ended, and other
    sessions get the signals too. If the last one ends on another thread, the handlers stay, and a signal has the effect
    that it has without them.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main and _listeners.handlers is None:
        yield
        return
    _listeners.add(flag)
    if is_main:
        _listeners.mains.append(flag)
    try:
        if is_main:
            _listeners.handle()
        yield
    finally:
        _listeners.remove(flag)
        is_over = _listeners.daemon is None and not _listeners.mains
        if is_over and threading.current_thread() is threading.main_thread():
            _listeners.unhandle()
