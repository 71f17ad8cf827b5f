"""The lock of a run directory: an flock that the kernel gives back however the process ends.

The file names the process that holds it, with its start time, so that a signal never goes to another process that was
given its pid later.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import msgspec

from trainerd.errors import InUseError, StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import read_json, storage
from trainerd.system.process_identity import is_process, process_identity
from trainerd.system.process_wide import process_wide
from trainerd.system.regular_files import read_regular


@dataclass(frozen=True)
class Holder:
    """The process that holds, or held, a lock; see `state.State` for the fields."""

    pid: int
    create_time: float
    uptime_at_start: float

    def is_alive(self) -> bool:
        """Return whether it is still running."""
        return is_process(self.pid, self.uptime_at_start)


class Lock:
    """A lock that this process holds, until it is closed.

    Args:
      path: the lock's file.
      file: open, and locked.
    """

    def __init__(self, path: Path, file: FileIO) -> None:
        self._path = path
        self._file = file
        self._folder = os.open(path.parent, _FOLDER)
        self._name = b""  # what this process has written into it
        self._has_settled = False  # in a folder that was made in place of the removed one, or was emptied

    @property
    def descriptors(self) -> list[int]:
        """The file descriptors that a daemon keeps open: that of the lock's file, and that of its folder."""
        return [self._file.fileno(), self._folder]

    def find_folder(self) -> Path | None:
        """Return the present path of the folder of the lock, which may have been moved; None if it was removed.

        An error that may pass proves nothing: the folder is where it was then, and what is done there fails by itself.
        """
        for path in (self._path.parent, Path(f"/proc/self/fd/{self._folder}").readlink()):
            try:
                if os.path.samestat(path.stat(), os.fstat(self._folder)):
                    return path
            except safe_paths.MISSING:
                continue
            except OSError:
                return self._path.parent
        return None

    def is_missing(self) -> bool:
        """Return whether no file has the lock's name, so that no command can see which process trains here."""
        try:
            return not safe_paths.exists(self._path)
        except OSError:  # it may be there
            return False

    def take_again(self) -> bool:
        """Take the lock in a folder that was made in place of the removed one, or was emptied.

        Returns:
          Whether there is such a folder. Another process may hold its lock: see `is_named`.
        """
        folder = self._path.parent
        with contextlib.suppress(OSError), FileIO(_open_lock(self._path), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size == 0 and self._name:
                file.write(self._name)
                os.dup2(file.fileno(), self._file.fileno(), inheritable=False)
                os.dup2(descriptor := os.open(folder, _FOLDER), self._folder, inheritable=False)
                os.close(descriptor)
                self._has_settled = True
        return os.path.isdir(folder)  # noqa: PTH112  no error where it may not be read

    @property
    def is_open(self) -> bool:
        """True if it is still held: a forked child closes its own."""
        return not self._file.closed

    def name_holder(self, pid: int) -> Holder:
        """Write which process holds it. Called after the fork, by the process that stays.

        Raises:
          StorageError: it cannot be written.
        """
        created, uptime = process_identity(pid)
        holder = Holder(pid, created, uptime)
        self._name = json.dumps(holder.__dict__).encode() + b"\n"
        with storage(f"write {self._path}"):
            self._file.seek(0)
            self._file.write(self._name)
            self._file.truncate()
        return holder

    def was_removed(self) -> bool:
        """Return whether the folder of the lock is gone, or another file has the name of the lock's file."""
        try:
            return self._has_settled or not os.path.samestat(os.lstat(self._path), os.fstat(self._file.fileno()))
        except OSError as error:
            return isinstance(error, safe_paths.MISSING)

    def is_named(self) -> bool:
        """Return whether no other process has named itself in the file that now has the lock's name."""
        if not self._name or not self.is_open:
            return True
        try:
            there = read_regular(self._path)
            msgspec.json.decode(there, type=Holder)
        except (OSError, ValueError):  # it is gone, or says nothing of anybody
            return True
        return there == self._name

    def close(self) -> None:
        """Give the lock back, unless another process has inherited it."""
        if not self._file.closed:
            os.close(self._folder)
        self._file.close()


_held = process_wide("locks", dict[Path, Lock]())
_settling = threading.Lock()
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def _open_lock(path: Path) -> int:
    with safe_paths.opened(path.parent) as folder:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.open(path.name, flags, 0o644, dir_fd=folder)


@contextlib.contextmanager
def acquire(rundir: RunDirectory) -> Iterator[Lock]:
    """Hold the lock of a run directory while the block runs. A child process that inherits the file holds it too.

    Raises:
      InUseError: another process holds it; or this one does, even if the folder was removed since.
      StorageError: the file cannot be made.
    """
    if (own := _held.get(rundir.lock)) is not None and own.is_open:
        raise InUseError(_in_use(rundir, os.getpid()))
    with storage(f"make {rundir.lock}"):
        descriptor = _open_lock(rundir.lock)
    held = Lock(rundir.lock, FileIO(descriptor, "r+"))
    with contextlib.closing(held):
        with storage(f"lock {rundir.lock}"):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = read_holder(rundir)
                raise InUseError(_in_use(rundir, holder.pid if holder is not None else None)) from None
        _held[rundir.lock] = held
        try:
            yield held
        finally:
            del _held[rundir.lock]


def is_there(rundir: RunDirectory) -> bool:
    """Return whether the run directory that this process holds was not removed.

    If it was made again, or emptied, its lock is taken again.
    """
    held = _lock_of(rundir)
    if held is None:
        return True
    with _settling:
        found = held.find_folder()
        is_emptied = found == rundir.path and held.is_missing()
        return held.take_again() if found is None or is_emptied else True


def moved_to(rundir: RunDirectory) -> Path | None:
    """Return the path to which somebody has moved the run directory of this process; None if it was not moved."""
    held = _lock_of(rundir)
    found = held.find_folder() if held is not None else None
    return found if found not in (None, rundir.path) else None


def _lock_of(rundir: RunDirectory) -> Lock | None:
    held = _held.get(rundir.lock)
    return held if held is not None and held.is_open else None


def was_removed(rundir: RunDirectory) -> bool:
    """Return whether this process holds a lock whose file is missing, or was replaced by another."""
    held = _lock_of(rundir)
    return held is not None and held.was_removed()


def is_in_place(rundir: RunDirectory) -> bool:
    """Return whether this process may write into a run directory. True if this process holds no lock.

    It may if nobody has moved the folder, and no other process has named itself in the lock there since.
    """
    held = _lock_of(rundir)
    return held is None or (held.is_named() and moved_to(rundir) is None)


def require_in_place(rundir: RunDirectory) -> None:
    """Require that a run directory is there, and `is_in_place`.

    Raises:
      StorageError: it is not; or it was removed.
    """
    if not is_there(rundir):
        raise StorageError(removed(rundir))
    if (where := moved_to(rundir)) is not None:
        raise StorageError(
            f"{rundir.path} was moved to {where} while a process trained in it. Nothing more is saved. The checkpoints "
            "are there: start the run with that folder as its `logdir`. Pause a run before you move it."
        )
    if not is_in_place(rundir):
        raise StorageError(
            f"{rundir.path} belongs to another run now: its lock names another process. Somebody removed or replaced "
            "it while this process trained in it. Nothing is written into it any more. Pause a run before you do that."
        )


def removed(rundir: RunDirectory) -> str:
    """Return the message for a run directory that was removed."""
    return (
        f"{rundir.path} was removed while a process trains in it: nothing can be saved. Create it "
        "again, and the next save goes into it."
    )


def find_removed(rundir: RunDirectory) -> int | None:
    """Return the pid of a process that trains in a removed run directory; None if none is found."""
    gone = f"{os.path.realpath(rundir.path)}/{rundir.lock.name} (deleted)"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is another user's, or has ended
            if any(str(entry.readlink()) == gone for entry in (process / "fd").iterdir()):
                return int(process.name)
    return None


def read_holder(rundir: RunDirectory) -> Holder | None:
    """Return the process that the lock's file names, if it is alive; None otherwise.

    Raises:
      StorageError: the file is there and cannot be read.
    """
    holder = read_json(rundir.lock, Holder)
    return holder if holder is not None and holder.is_alive() else None


def _in_use(rundir: RunDirectory, pid: int | None) -> str:
    if pid == os.getpid():
        return (
            f"process {pid} trains in {rundir.path}. That is this process: first end the session that does, "
            "with its `close()`, its Supervisor's `stop()` or its `with` block; for a second run set another `logdir`. "
            "To only read the model, restore its newest checkpoint with a Saver of your own."
        )
    who = f"process {pid}" if pid is not None else "another process"
    logdir = f"--logdir {shlex.quote(str(rundir.path))}"
    return (
        f"{who} trains in {rundir.path}. `trainerd status {logdir}` shows it, `trainerd pause {logdir}` stops it; for "
        "a second run set another `logdir`."
    )
