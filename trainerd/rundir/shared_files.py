"""The lock of the small files that several processes of one run write: evaluations, records, events.

Each of them is read, changed and replaced as a whole, so two writers at once would lose what one of them wrote. The
lock is held for the milliseconds of one such change, and never while something else runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from trainerd.errors import StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import storage
from trainerd.system.regular_files import open_to_append

_PATIENCE_SECS = 10.0
_POLL_SECS = 0.005
_FOR_WRITERS = 0o620  # who may only read the run cannot open it, and keep its writers waiting


@contextlib.contextmanager
def writing(
    rundir: RunDirectory,
    patience: float = _PATIENCE_SECS,
    *,
    timer: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the lock while the block runs.

    Args:
      rundir: the run directory.
      patience: seconds to wait for another process.
      timer: seconds on a clock that is never set.
      sleep: waits so many seconds.

    Raises:
      StorageError: another process holds it for longer than that, or it cannot be taken.
    """
    with contextlib.ExitStack() as stack:
        with storage(f"write {rundir.writing}"):
            descriptor = open_to_append(rundir.writing, _FOR_WRITERS)
        stack.callback(os.close, descriptor)  # which gives the lock back
        deadline = timer() + patience
        while not _is_taken(rundir, descriptor):
            if timer() >= deadline:
                raise StorageError(
                    f"another process has held {rundir.writing} for {patience:g} s. Try again; if it stays so, "
                    f"`fuser {rundir.writing}` shows which process that is."
                )
            sleep(_POLL_SECS)
        yield


def _is_taken(rundir: RunDirectory, descriptor: int) -> bool:
    with storage(f"lock {rundir.writing}"):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
