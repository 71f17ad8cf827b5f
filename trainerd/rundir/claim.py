"""Takes a run directory for a process that trains there."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence

from trainerd.rundir import lock, request_files
from trainerd.rundir.location import Place
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer, Reporter
from trainerd.rundir.state import State
from trainerd.rundir.state_writer import StateFile
from trainerd.system.fork import undone_in_children
from trainerd.system.threads import called_every

log = logging.getLogger(__name__)


FLUSH_SECS = 0.5


@contextlib.contextmanager
def claimed(rundir: RunDirectory, job: str, observers: Sequence[Observer] = ()) -> Iterator[Reporter]:
    """Take a run directory for this process, while the block runs.

    Args:
      rundir: which.
      job: what trains there, for `trainerd status`.
      observers: told of every change of the state.

    Raises:
      InUseError: another process trains there.
      StorageError: it cannot be written.
    """
    rundir.create()
    with lock.hold(rundir) as held, undone_in_children(held.close):
        if request_files.consume(rundir.pause):
            log.warning("removed a pause file from before this start: %s", rundir.pause)
        request_files.consume_save(rundir)
        holder = held.name_holder(os.getpid())
        state_file = StateFile(rundir)
        reporter = Reporter(
            State(**holder.__dict__, logdir=str(rundir.path), job=job), [state_file.observe, *observers]
        )
        place = Place(rundir, reporter)

        def look() -> None:
            place.look()
            state_file.flush()

        with called_every(FLUSH_SECS, look, name="state"):
            yield reporter
