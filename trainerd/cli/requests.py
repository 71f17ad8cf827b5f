"""The requests of commands to a running trainer: files in the run directory, and an answer in state.json."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from trainerd.rundir.lock import Holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.request_files import append
from trainerd.rundir.requests.pending_request import PendingRequest
from trainerd.rundir.state import Answer

POLL_SECS = 0.05


def ask_for_save(rundir: RunDirectory, holder: Holder, *, sleep: Callable[[float], None] = time.sleep) -> Answer:
    """Ask for a checkpoint that begins after now, and wait until it is durable or has failed.

    Raises:
      NotRunningError: the process ended before it answered.
    """
    request = uuid.uuid4().hex
    return ask(rundir, holder, request, lambda: append(rundir.save, request + "\n"), rundir.save, "saved", sleep=sleep)


def ask(
    rundir: RunDirectory,
    holder: Holder,
    request: str,
    write: Callable[[], None],
    path: Path,
    done: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """Write a request file, and wait for the answer.

    Args:
      rundir: the run directory.
      holder: the process that trains there.
      request: the id of the request, which is in the file.
      write: writes the file.
      path: the file.
      done: what the process has done then, for a message.
      sleep: waits so many seconds.

    Raises:
      NotRunningError: the process ended before it answered.
    """
    pending = PendingRequest(rundir, holder, request, write, path, done)
    pending.send()
    while (answer := pending.look(POLL_SECS)) is None:
        sleep(POLL_SECS)
    return answer


def wait_for_end(holder: Holder, *, still: Callable[[], bool] = lambda: True) -> None:
    """Wait until the process has ended or `still` returns False."""
    while holder.is_alive() and still():
        time.sleep(POLL_SECS)
