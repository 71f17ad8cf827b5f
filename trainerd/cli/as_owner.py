"""Root does not run the code of another user's job: commands that would do so show how to run them as that user."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from pathlib import Path

from trainerd.errors import UsageError
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage
from trainerd.system.machine import MACHINE

RUNS_JOB = "runs the job's code"


def require_owner(rundir: RunDirectory, does: str = RUNS_JOB) -> None:
    """Require that this command may run the job of a run directory, or have TensorFlow read its checkpoints.

    TensorFlow opens a file by its path, which the job may exchange after trainerd has looked at it.

    Args:
      rundir: the run directory.
      does: what the command does, for the message.

    Raises:
      UsageError: this is root, and the run is another user's: the job could do all that root can.
      StorageError: the run directory cannot be read, or a link of another user leads to it.
    """
    if os.geteuid() != 0:
        return
    owner = 0
    with storage(f"read {rundir.path}", missing_ok=True), safe_paths.opened(rundir.path) as folder:
        owner = os.fstat(folder).st_uid
    if owner == 0:
        return
    raise UsageError(
        f"{rundir.path} belongs to {_name(owner)}, and this command {does}, which root does not do for another "
        f"user. Run it as that user:\n\n    {_command(rundir.path.resolve(), owner)}\n"
    )


def require_own_folders(folder: Path, does: str) -> None:
    """Require that all of a folder is root's, if this is root: the command follows whatever links are there.

    Args:
      folder: a run directory, or a folder of several.
      does: what the command does, for the message.

    Raises:
      UsageError: a part of it belongs to another user; or it does not exist, and another user can create it.
    """
    if os.geteuid() != 0:
        return
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    require_owner(RunDirectory(there), does)
    if there != folder and there.stat().st_mode & 0o022:
        raise UsageError(f"{folder} does not exist, and any user can create it in {there}. Create it first.")
    for parent, names, _ in os.walk(folder):
        for each in (Path(parent, name) for name in names):
            with storage(f"read {each}", missing_ok=True):
                if (owner := each.stat().st_uid) != 0:
                    raise UsageError(
                        f"{each} belongs to {_name(owner)}, and this command {does}, which root does not do for "
                        f"another user. Name a folder of your own, or run it as that user for {each}."
                    )


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
