"""Signals: the handlers only record; a thread raises the flag.

Python runs its handlers between bytecodes of the main thread, which is inside TensorFlow's graph for seconds. The
C-level handler, though, writes each signal's number to the file descriptor of `signal.set_wakeup_fd` at once. A
thread reads it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from trainerd.loop.flag import Request
from trainerd.system import terminal
from trainerd.system.fork import undone_in_children

log = logging.getLogger(__name__)

STOP = (signal.SIGTERM, signal.SIGINT)
HANDLED = (*STOP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
SAME_STOP_SECS = 0.5  # `timeout` and service managers signal the process and then its group: one stop, heard twice
_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20


def exit_by_signal(number: int) -> None:
    """End this process at once, as the signal does without a handler. Nothing is saved."""
    terminal.restore()
    ctypes.CDLL(None).signal(number, None)  # signal.signal() is for the main thread alone, which is in the graph
    os.kill(os.getpid(), number)


class SignalThread:
    """Reads signals' numbers and serves them.

    Args:
      raise_for: raises one flag, or several; see `Flag.raise_for`.
      terminal_is_gone: whether a SIGHUP means that the terminal was closed; then it pauses.
      exit_now: called with the number of a second SIGTERM or SIGINT that comes `SAME_STOP_SECS` or more after the
        first. One that comes sooner counts as the first again.
      monotonic: the clock, in seconds.
    """

    def __init__(
        self,
        raise_for: Callable[[Request, str], None],
        *,
        terminal_is_gone: Callable[[], bool] = lambda: False,
        exit_now: Callable[[int], None] = exit_by_signal,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._raise_for = raise_for
        self._terminal_is_gone = terminal_is_gone
        self._exit_now = exit_now
        self._monotonic = monotonic
        self._stopped_at: float | None = None

    def handle(self, number: int) -> None:
        """Serve one signal."""
        if number in STOP:
            self._stop(number)
        elif number == signal.SIGUSR1:
            self._raise_for(Request.SAVE, "")
        elif number == signal.SIGUSR2:
            _say(logging.WARNING, "every thread's stack:\n%s", stacks())
        elif number == signal.SIGHUP:
            if self._terminal_is_gone():
                self._pause("the terminal was closed")
            else:
                self._raise_for(Request.RELOAD, "")

    def _stop(self, number: int) -> None:
        """Pause at the first, exit at the second."""
        now, name = self._monotonic(), signal.Signals(number).name
        if self._stopped_at is None:
            self._pause(name)
            self._stopped_at = self._monotonic()  # the same stop may have come while that was done
        elif now - self._stopped_at >= SAME_STOP_SECS:
            _say(logging.WARNING, "a second %s: exiting now, without a save", name)
            self._exit_now(number)

    def forget_stop(self) -> None:
        """Count the next signal as the first: the process continues after a stop request."""
        self._stopped_at = None

    def _pause(self, why: str) -> None:
        self._raise_for(Request.PAUSE, why)
        _say(logging.INFO, "pausing at the next step: %s", why)

    def run(self, descriptor: int) -> None:
        """Serve the numbers from the descriptor until a 0 comes."""
        while True:
            numbers = os.read(descriptor, 4096)
            for number in numbers:
                if number == 0:
                    return
                if number in HANDLED:
                    self._handle_whatever_happens(number)

    def _handle_whatever_happens(self, number: int) -> None:
        """Serve a signal. An error must not end the thread, which later signals need."""
        try:
            self.handle(number)
        except Exception as error:
            _say(logging.ERROR, "cannot do what %s is for: %r", signal.Signals(number).name, error)


def _say(level: int, message: str, *values: object) -> None:
    """Log, and ignore a failure: a closed terminal must not end the thread."""
    with contextlib.suppress(OSError):
        log.log(level, message, *values, extra={"event": "signal"})


def stacks() -> str:
    """Return the Python stack of every thread."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


@contextlib.contextmanager
def handled(
    thread: SignalThread, in_python: Callable[[int], None] = lambda number: None
) -> Iterator[Callable[[], list[int]]]:
    """Handle signals while the block runs, and put the handlers back that were there before.

    The block gets a function that sets replaced handlers again, and returns their signals.

    Args:
      thread: serves the signals.
      in_python: called with each number by the main thread, when that runs Python.
    """

    def handler(number: int, frame: FrameType | None) -> None:
        in_python(number)

    reader, writer = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # the default of 64 KiB holds 65,536 signals; more is not always allowed
        fcntl.fcntl(writer, _F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(writer, False)
    runner = threading.Thread(target=thread.run, args=(reader,), name="trainerd-signals", daemon=True)
    runner.start()
    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, handler) for number in HANDLED}

    def put_back(descriptor: int) -> None:
        for number, earlier in before.items():
            signal.signal(number, earlier or signal.SIG_DFL)
        signal.set_wakeup_fd(descriptor)

    def renew() -> list[int]:
        replaced = [int(number) for number in HANDLED if signal.getsignal(number) is not handler]
        for number in HANDLED:  # all: a library may have replaced one in C, which Python does not see
            signal.signal(number, handler)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        return replaced

    def leave() -> None:
        put_back(-1)
        os.close(reader)
        os.close(writer)

    try:
        with undone_in_children(leave):
            yield renew
    finally:
        # Python lets the main thread alone put handlers back. From another one they stay, with the thread that hears.
        if threading.current_thread() is threading.main_thread():
            put_back(before_fd)
            os.set_blocking(writer, True)
            os.write(writer, b"\0")
            runner.join()
            os.close(reader)
            os.close(writer)


def terminal_check() -> Callable[[], bool]:
    """Return a function that checks whether the present terminal of standard input has been closed since.

    If it has, this process's output is dropped from then on, instead of failing.
    """
    # Beside 0 to 2 there is what `beside_redirection` has opened for the display.
    terminals = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_terminal(number)]
    if 0 not in terminals:
        return lambda: False

    def is_gone() -> bool:
        try:
            os.tcgetpgrp(0)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for number in terminals:
                os.dup2(null, number)
            os.close(null)
            return True
        return False

    return is_gone


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
