"""The requests of commands to a running trainer: files in the run directory, and an answer in state.json."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from trainerd.errors import NotRunningError
from trainerd.rundir.lock import Holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.request_files import append
from trainerd.rundir.state import Answer, Phase, read_state

POLL_SECS = 0.05
_AGAIN_SECS = 5.0
_SERVED = (Phase.SAVING, Phase.PAUSING, Phase.RESTORING)  # what a request has the process do


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
    write()
    gone_for = 0.0
    while True:
        alive = holder.is_alive()
        state = read_state(rundir.state)
        if state is not None and (answer := state.answer_to(request)) is not None:
            return answer
        if not alive:
            raise NotRunningError(f"process {holder.pid} ended before it {done}. `trainerd status` says why.")
        # The trainer could not read the file, or it started and removed what was asked of an earlier process. It
        # serves an id once, so a request that it has taken does not happen twice.
        is_served = state is not None and state.phase in _SERVED
        gone_for = 0.0 if is_served or path.exists() else gone_for + POLL_SECS
        if gone_for > _AGAIN_SECS:
            gone_for = 0.0
            write()
        sleep(POLL_SECS)


def wait_for_end(holder: Holder, *, still: Callable[[], bool] = lambda: True) -> None:
    """Wait until the process has ended or `still` returns False."""
    while holder.is_alive() and still():
        time.sleep(POLL_SECS)
