"""The lock of a run directory: an flock that the kernel gives back however the process ends.

The file names the process that holds it, with its start time, so that a signal never goes to another process
which has got its pid since.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainerd.errors import InUseError, StorageError
from trainerd.files import read_regular, storage
from trainerd.rundir import RunDirectory
from trainerd.state import is_process, process_identity


@dataclass(frozen=True)
class Holder:
    """The process that holds, or held, a lock; see `state.State` for the fields."""

    pid: int
    create_time: float
    uptime_at_start: float

    def is_alive(self) -> bool:
        """Whether it is running still."""
        return is_process(self.pid, self.uptime_at_start)


_held: dict[Path, IO[str]] = {}  # by this process


@contextlib.contextmanager
def hold(rundir: RunDirectory) -> Iterator[IO[str]]:
    """Hold the lock of a run directory while the block runs. A child process that inherits the file holds it too.

    Raises:
      InUseError: another process holds it.
      StorageError: the file cannot be made.
    """
    with storage(f"make {rundir.lock}"):
        descriptor = os.open(rundir.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        file = os.fdopen(descriptor, "r+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(_in_use(rundir)) from None
        _held[rundir.lock] = file
        try:
            yield file
        finally:
            if _held.get(rundir.lock) is file:
                del _held[rundir.lock]


def name_holder(file: IO[str], pid: int) -> Holder:
    """Write which process holds the lock. Called after the fork, by the process that stays."""
    created, uptime = process_identity(pid)
    holder = Holder(pid, created, uptime)
    with storage(f"write {file.name}"):
        file.seek(0)
        file.write(json.dumps(holder.__dict__) + "\n")
        file.truncate()
        file.flush()
    return holder


def is_in_place(rundir: RunDirectory) -> bool:
    """Whether what this process holds is still in its place: a lock does not follow a folder that is moved or removed.

    It is not where another process has named itself in since. Where this one holds nothing, all is.
    """
    file = _held.get(rundir.lock)
    if file is None or file.closed:
        return True
    try:
        there = read_regular(rundir.lock)
        Holder(**json.loads(there))
    except (OSError, ValueError, TypeError):  # it is gone, or says nothing of anybody
        return True
    try:
        return there == os.pread(file.fileno(), len(there) + 1, 0)
    except (OSError, ValueError) as error:  # it cannot be told; a stale handle is of what is no longer there
        return getattr(error, "errno", None) != errno.ESTALE


def require_in_place(rundir: RunDirectory) -> None:
    """See that it `is_in_place`.

    Raises:
      StorageError: it is not.
    """
    if not is_in_place(rundir):
        raise StorageError(
            f"{rundir.path} is another run's now: it was moved or removed while this process trained in it, and "
            "another has begun there. Nothing is written into it any more. Pause a run before you move or remove it."
        )


def read_holder(rundir: RunDirectory) -> Holder | None:
    """The process that the lock's file names, if it is alive; None otherwise.

    Raises:
      StorageError: the file is there and cannot be read.
    """
    try:
        with storage(f"read {rundir.lock}", missing_ok=True):
            holder = Holder(**json.loads(read_regular(rundir.lock)))
            return holder if holder.is_alive() else None
    except (ValueError, TypeError):
        return None
    return None


def _in_use(rundir: RunDirectory) -> str:
    holder = read_holder(rundir)
    if holder is not None and holder.pid == os.getpid():
        return (
            f"process {holder.pid} trains in {rundir.path}. That is this process: first end the session that does, "
            "with its `close()`, its Supervisor's `stop()` or its `with` block; for a second run set another `logdir`. "
            "What only looks at the model can restore its newest checkpoint with a Saver of its own."
        )
    who = f"process {holder.pid}" if holder else "another process"
    logdir = f"--logdir {shlex.quote(str(rundir.path))}"
    return (
        f"{who} trains in {rundir.path}. `trainerd status {logdir}` shows it, `trainerd pause {logdir}` stops it; for "
        "a second run set another `logdir`."
    )
