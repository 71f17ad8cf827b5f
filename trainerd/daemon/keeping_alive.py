"""Processes that are started again when another worker is gone, until the run has ended."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import daemon

from trainerd.errors import PeerLostError
from trainerd.system.backoff import Backoff

log = logging.getLogger(__name__)

AGAIN_SECS, MOST_SECS = 1.0, 60.0  # between an end and the next start: more each time, unless it lived for a while
LIVED_SECS = 60.0
END_SECS = 10.0  # from the last end of one, until the others are stopped
POLL_SECS = 0.05
STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class Kept:
    """One process.

    Attributes:
      command: what it runs.
      environment: all of its environment.
      name: for a person.
      is_shown: whether it has this process's output; else nothing shows it.
      process: the present one.
      again_at: when it is started again, in seconds of a clock that is never set; None if it is not.
      code: the exit code of its last end; None while it lives or is started again.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    name: str
    is_shown: bool = True
    process: subprocess.Popen[bytes] | None = None
    again_at: float | None = None
    code: int | None = None
    starts: int = 0
    started_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(AGAIN_SECS, MOST_SECS))

    def start(self, now: float) -> None:
        """Start it, in a process group of its own: Ctrl-C is passed on once."""
        self.again_at, self.started_at = None, now
        self.starts += 1
        output = None if self.is_shown else subprocess.DEVNULL
        self.process = subprocess.Popen(
            self.command,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
        )

    def check(self, now: float, *, is_stopping: bool) -> None:
        """See whether it has ended, and whether it is to be started again."""
        if self.again_at is not None and (now >= self.again_at or is_stopping):
            if is_stopping:
                self.again_at, self.code = None, 0
            else:
                self.start(now)
        if self.process is None or self.process.poll() is None or self.again_at is not None or self.code is not None:
            return
        ended = self.process.returncode
        if not is_stopping and (ended < 0 or ended == PeerLostError.exit_code):
            if now - self.started_at >= LIVED_SECS:
                self.backoff.succeeded()
            self.again_at = now + self.backoff.failed()
        else:
            is_end = is_stopping and ended in (PeerLostError.exit_code, -signal.SIGTERM)  # as it was asked to
            self.code = 0 if is_end else ended


def keep_alive(
    kept: Sequence[Kept],
    *,
    report: Callable[[str], None] = lambda text: None,
    timer: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run processes until all have ended and are not started again. A signal that stops this process stops them.

    One that was killed, or has lost another worker, is started again. One that fails in another way ends the rest,
    which hear of it themselves.

    Args:
      kept: what to run.
      report: called with a text for each end and each start after the first.

    Returns:
      The first exit code that is not 0, or 0; negative for a signal.
    """
    asked: list[int] = []
    heard = [number for number in STOP if signal.getsignal(number) is not signal.SIG_IGN]  # `nohup` ignores one
    before = {number: signal.signal(number, lambda number, frame: asked.append(number)) for number in heard}
    passed = 0
    ends_at: float | None = None
    try:
        for each in kept:
            each.start(timer())
        while any(each.code is None for each in kept):
            now = timer()
            if ends_at is None and any(each.code is not None for each in kept):
                ends_at = now + END_SECS
            if not asked and ends_at is not None and now >= ends_at:
                asked.append(signal.SIGTERM)  # one has ended permanently: another may wait for it
            for _ in asked[passed:]:
                for each in kept:
                    if each.process is not None and each.process.poll() is None:
                        with contextlib.suppress(ProcessLookupError):
                            each.process.send_signal(signal.SIGTERM)
            passed = len(asked)
            for each in kept:
                starts, was_waiting = each.starts, each.again_at is not None
                each.check(now, is_stopping=bool(asked))
                if each.again_at is not None and not was_waiting:
                    report(f"{each.name} {_ended(each)}; restarting it")
                if each.starts > starts:
                    report(f"{each.name} restarted")
            sleep(POLL_SECS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in kept:
            if each.process is not None and each.process.poll() is None:
                each.process.kill()
                each.process.wait()
    return next((each.code for each in kept if each.code), 0)


def _ended(kept: Kept) -> str:
    """Return how a process has ended, for a person."""
    code = kept.process.returncode if kept.process is not None else 0
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"exited with {code}"


def detach(folder: Path, kept: Sequence[int]) -> None:
    """Become a daemon, which runs in a folder and keeps these descriptors open."""
    umask = os.umask(0o077)
    daemon.DaemonContext(
        detach_process=True, umask=umask, working_directory=str(folder), files_preserve=kept, signal_map={}
    ).open()


def keep_alive_in_background(kept: Kept, folder: Path) -> int:
    """Have a daemon keep a process alive. Returns the daemon's pid.

    Args:
      kept: what it runs; nothing shows its output but the log that it writes itself.
      folder: where it runs.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child:
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader, encoding="ascii") as pipe:
            return int(pipe.read())
    code = PeerLostError.exit_code
    try:
        detach(folder, [writer])
        os.write(writer, str(os.getpid()).encode())
        os.close(writer)
        code = keep_alive([kept])
    finally:
        os._exit(max(code, 0))
