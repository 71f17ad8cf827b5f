"""Root does not run the code of another user's job: commands that would do so show how to run them as that user."""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from trainerd.config.schema import Config
from trainerd.errors import NotRunningError, UsageError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage
from trainerd.system.machine import MACHINE

RUNS_JOB = "runs the job's code"
_MOST_LINKS = 40  # on the way to a folder, as the kernel


def require_owner(rundir: RunDirectory, does: str = RUNS_JOB) -> None:
    """Require that this command may run the job of a run directory, or have TensorFlow read its checkpoints.

    TensorFlow opens a file by its path, which the job may exchange after trainerd has checked it.

    Args:
      rundir: the run directory.
      does: what the command does, for the message.

    Raises:
      UsageError: this is root, and the run is another user's: the job could do all that root can.
      NotRunningError: this is root and the run directory does not exist, so its owner is unknown.
      StorageError: the run directory cannot be read, or a link of another user leads to it.
    """
    if os.geteuid() == 0 and not _exists_and_is_roots(rundir, does):
        raise NotRunningError(f"the run directory {rundir.path} does not exist. `trainerd list` shows your runs.")


def require_own_job(rundir: RunDirectory, config: Config) -> None:
    """Require that this command may run the code of a job, from checkpoints in this run directory.

    The job of another user's config runs as root only if root has trained the run itself, as in a container with a
    project that is mounted.

    Args:
      rundir: the run directory.
      config: names the job. Its folder comes first on the import path.

    Raises:
      UsageError, NotRunningError, StorageError: see `require_owner`. The config and its folder are checked too.
    """
    require_owner(rundir)
    if os.geteuid() != 0 or read_state(rundir.state) is not None:
        return
    of_config = [config.path, config.path.parent] if config.path is not None else []
    for path in [config.folder, *of_config]:
        with storage(f"read {path}"):
            owner = path.stat().st_uid
        if owner != 0:
            raise _refusal(path, path.resolve(), owner, RUNS_JOB)


def _exists_and_is_roots(rundir: RunDirectory, does: str) -> bool:
    """Return whether a run directory exists, and require that it is root's."""
    owner, real = None, rundir.path
    with storage(f"read {rundir.path}", missing_ok=True), safe_paths.opened(rundir.path) as folder:
        owner, real = os.fstat(folder).st_uid, rundir.path.resolve()
    if owner is None or owner == 0:
        return owner == 0
    raise _refusal(rundir.path, real, owner, does)


def _refusal(path: Path, real: Path, owner: int, does: str) -> UsageError:
    return UsageError(
        f"{path} belongs to {_name(owner)}, and this command {does}, which root does not do for another "
        f"user. Run it as that user:\n\n    {_command(real, owner)}\n"
    )


def require_roots_alone(folder: Path, does: str) -> None:
    """Require that only root can change what is in a folder, and where its links lead, if this is root.

    The command opens files there by their paths, again and again, and follows links.

    Args:
      folder: a run directory, or a folder of several. It may be missing.
      does: what the command does, for the message.

    Raises:
      UsageError: another user can change something there, on the way to it, or where a link leads.
      StorageError: it cannot be read.
    """
    if os.geteuid() != 0:
        return
    _exists_and_is_roots(RunDirectory(folder), does)
    pending, seen = [folder.absolute()], set[Path]()
    while pending:
        for path, is_above in _reached(pending.pop()):
            if path in seen:
                continue
            with storage(f"read {path}", missing_ok=True):  # a run that trains there removes files
                found = path.lstat()
                if (why := _open_to_others(found, is_above=is_above)) is not None:
                    raise UsageError(
                        f"{path} {why}, and this command {does}. As root it does so only where no other user can "
                        "change anything. Run it as the owner of the files, or copy them to a folder of root's."
                    )
                if stat.S_ISLNK(found.st_mode) and not is_above:
                    pending.append(path)
                if not is_above:
                    seen.add(path)


def _reached(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each entry that a path leads through, links included, and all that is in the folder that it leads to.

    Each comes with whether it is on the way to that folder. If that is missing, the one that would hold it is the last.
    """
    left, current, links = list(reversed(path.parts)), Path("/"), 0
    above = list[Path]()
    with storage(f"read {path}"):
        while left:
            part = left.pop()
            current = Path("/") if part == "/" else current.parent if part == ".." else current / part
            if not os.path.lexists(current):
                above.append(current.parent)
                break
            above.append(current)
            if current.is_symlink():
                if (links := links + 1) > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                left += reversed(current.readlink().parts)
                current = current.parent
        yield from ((each, True) for each in above[:-1])
        yield above[-1], False
        for parent, *both in os.walk(current):
            yield from ((Path(parent, name), False) for names in both for name in names)


def _open_to_others(found: os.stat_result, *, is_above: bool) -> str | None:
    """Return how a user who is not root can change an entry, or where it leads; None if none can.

    Args:
      found: the entry.
      is_above: whether it is a folder on the way to one of root's. If it is sticky, nobody exchanges what is root's.
    """
    mode = found.st_mode
    if found.st_uid != 0:
        return f"belongs to {_name(found.st_uid)}"
    if stat.S_ISLNK(mode):
        return None
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not (is_above and mode & stat.S_ISVTX):
        return "can be written by other users"
    return None


def _name(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"


def _command(folder: Path, uid: int) -> str:
    """Return the same command, as the owner of the folder types it."""
    typed = [str(Path(sys.argv[0]).resolve()), *sys.argv[1:]]
    if (service := _service_of(folder)) is None:
        return shlex.join(["sudo", "-u", f"#{uid}", *typed])
    settings = ["DynamicUser=yes", f"User={service}", f"StateDirectory={service}"]
    options = [part for setting in settings for part in ("-p", setting)]
    return shlex.join(["sudo", "systemd-run", "--pipe", "--wait", "--collect", "--quiet", *options, *typed])


def _service_of(folder: Path) -> str | None:
    """Return the service whose state directory holds a folder: its user exists only while it runs."""
    private = MACHINE.state / "private"
    return folder.relative_to(private).parts[0] if folder.is_relative_to(private) and folder != private else None
