"""Starts a sender for each channel that something waits for, and tries again later if one failed."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainerd.system.backoff import Backoff
from trainerd.watch.delivery import channel
from trainerd.watch.delivery.notes import Notes

log = logging.getLogger(__name__)

FIRST_RETRY_SECS, MOST_RETRY_SECS = 5.0, 60.0
LEAVE_SECS = 20.0  # for a notice that is being sent when the watcher ends


class Senders:
    """The senders of all channels, one at a time for each.

    Args:
      config: the file that names the channels; None for none.
      urls: of the channels.
      notes: has what waits.
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self, config: Path | None, urls: Sequence[str], notes: Notes, *, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self.names = [channel.identity(url) for url in urls]
        self._config, self._notes, self._timer = config, notes, timer
        self._senders = [_Sender(number, url) for number, url in enumerate(urls, 1)]

    def check(self) -> None:
        """Reap those that have ended, and start those that have something to send.

        Raises:
          StorageError: the notes cannot be read.
        """
        waiting = self._notes.waiting() if self._senders else {}
        now = self._timer()
        for sender in self._senders:
            sender.reap(now)
            if waiting.get(sender.name) and sender.is_due(now):
                assert self._config is not None
                sender.start(self._config, self._notes.path.parent, now)

    def close(self) -> None:
        """Let each finish the notice that it is sending."""
        running = [sender.process for sender in self._senders if sender.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + LEAVE_SECS
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=max(0.0, deadline - time.monotonic()))


class _Sender:
    """The sender of one channel.

    Args:
      number: of the channel in the config, from 1.
      url: the channel's.

    Attributes:
      name: the channel's identity.
      process: the one that runs; None if none does.
    """

    def __init__(self, number: int, url: str) -> None:
        self.name = channel.identity(url)
        self.process: subprocess.Popen[str] | None = None
        self._number, self._service = number, channel.service(url)
        self._backoff = Backoff(FIRST_RETRY_SECS, MOST_RETRY_SECS)
        self._next_at = 0.0

    def is_due(self, now: float) -> bool:
        return self.process is None and now >= self._next_at

    def start(self, config: Path, folder: Path, now: float) -> None:
        try:
            self.process = start(config, self.name, str(folder))
        except OSError as error:  # there is no memory for it, say
            self._failed(f"its sender cannot be started: {error}", now)

    def reap(self, now: float) -> None:
        """Take note of how it has ended, if it has."""
        if self.process is None or self.process.poll() is None:
            return
        code, said = self.process.returncode, self.process.communicate()[1].strip()
        self.process = None
        if code == 0:
            self._backoff.succeeded()
            return
        self._failed(said.splitlines()[-1] if said else f"its sender ended with {code}", now)

    def _failed(self, why: str, now: float) -> None:
        wait = self._backoff.failed()
        log.warning(
            "channel %d (%s) will be retried in %.0f s: %s",
            self._number,
            self._service,
            wait,
            why,
            extra={"event": "undelivered"},
        )
        self._next_at = now + wait


def start(config: Path, name: str, folder: str) -> subprocess.Popen[str]:
    """Start a sender in a session of its own: a Ctrl-C is for the watcher, which lets it finish."""
    return subprocess.Popen(
        [sys.executable, "-m", "trainerd.watch.delivery.sender", str(config), name, folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
