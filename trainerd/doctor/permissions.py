"""Checks whether the user that trains may read the config and write the run directory."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well
from trainerd.doctor.systemd import Properties

_SHOWN = 3  # files


@dataclass(frozen=True)
class User:
    """Who trains.

    Attributes:
      uid: the user's number.
      groups: the numbers of its groups.
    """

    uid: int
    groups: frozenset[int]

    def __str__(self) -> str:
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"uid {self.uid}"

    def may(self, found: os.stat_result, wanted: int) -> bool:
        """Return whether the permission bits allow all of `wanted`, a sum of os.R_OK, os.W_OK and os.X_OK."""
        if self.uid == 0:
            return True
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid in self.groups else 0
        return (found.st_mode >> shift) & wanted == wanted

    def can(self, path: Path, wanted: int) -> bool:
        """Return whether it may do that with a file that is there, in a folder that it may enter.

        If this process is the user's, the kernel is asked, which knows access control lists too.
        """
        if self.uid == os.geteuid():
            return os.access(path, wanted, effective_ids=True)
        return self.may(path.stat(), wanted)

    def reaches(self, path: Path, wanted: int) -> bool:
        """Return whether it may do that with a file that is there, and enter the folders above it."""
        return all(self.can(folder, os.X_OK) for folder in path.parents) and self.can(path, wanted)


def check(facts: Facts) -> Iterator[Finding]:
    """Check the config, the run directory, and every file in it."""
    try:
        user = trains_as(facts.pid, facts.properties)
    except KeyError:
        name = facts.properties["User"]
        yield problem(f"the user of the unit, {name}, does not exist", f"create it: `useradd --system {name}`.")
        return
    if user is None:
        yield well("the unit has a user of its own, which is made and given the run directory at each start")
        return
    found = [*of_config(facts.config.path, user), *of_folder(facts.rundir.path, user)]
    if facts.rundir.path.is_dir():
        found += of_files(facts.rundir.path, user, appended=(facts.rundir.lock, facts.rundir.log, facts.rundir.events))
    yield from found or [well(f"{user} may read the config and write the run directory")]


def trains_as(pid: int | None, properties: Properties) -> User | None:
    """Return the user that trains: that of the process, or of the unit, or this one; None for one that is not made yet.

    Raises:
      KeyError: there is no user of the name that the unit has.
    """
    if pid is not None:
        process = psutil.Process(pid)
        groups = Path(f"/proc/{pid}/status").read_text().partition("Groups:")[2].partition("\n")[0]
        return User(process.uids().effective, frozenset([process.gids().effective, *map(int, groups.split())]))
    if properties.get("DynamicUser") == "yes":
        return None
    if name := properties.get("User"):
        known = pwd.getpwnam(name)
        return User(known.pw_uid, frozenset(os.getgrouplist(name, known.pw_gid)))
    return User(os.geteuid(), frozenset([os.getegid(), *os.getgroups()]))


def of_config(path: Path | None, user: User) -> Iterator[Finding]:
    """Yield a finding if the config cannot be read."""
    if path is not None and not user.reaches(path, os.R_OK):
        cure = f"`chmod a+r {shlex.quote(str(path))}`, or change its owner."
        yield problem(f"{user} cannot read {path}", cure)


def of_folder(rundir: Path, user: User) -> Iterator[Finding]:
    """Yield a finding if the run directory cannot be written, or made."""
    if rundir.is_dir():
        if not user.reaches(rundir, os.R_OK | os.W_OK | os.X_OK):
            yield problem(f"{user} cannot write {rundir}", _chown(rundir, user))
        return
    above = next(each for each in rundir.parents if each.is_dir())
    if not user.reaches(above, os.W_OK | os.X_OK):
        cure = f"make {rundir} for that user, or set another `logdir`."
        yield problem(f"{user} cannot make {rundir}: {above} is closed to it", cure)


def of_files(rundir: Path, user: User, appended: Sequence[Path]) -> Iterator[Finding]:
    """Yield findings on files that cannot be read or appended to, that are another user's, or that are links.

    Args:
      rundir: the run directory.
      user: who trains.
      appended: the files that are appended to; the others are replaced as a whole.
    """
    owner = rundir.stat()
    is_shared = owner.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    others, closed, links = [], [], []
    for path in _files(rundir):
        try:
            found = path.lstat()
        except FileNotFoundError:  # a run that trains replaces its files
            continue
        if stat.S_ISLNK(found.st_mode):
            links.append(path)
        elif not is_shared and found.st_uid not in (0, user.uid, owner.st_uid):
            others.append(path)
        elif not user.can(path, os.R_OK | (os.W_OK if path in appended else 0)) and os.path.lexists(path):
            closed.append(path)
    if others:
        cure = f"{_chown(rundir, user)} What another user has planted is not read."
        yield problem(f"of another user than the folder: {_names(others, rundir)}", cure)
    if closed:
        yield problem(f"{user} cannot read or write {_names(closed, rundir)}", _chown(rundir, user))
    if links:
        said = f"symbolic links, which are not followed in a run directory: {_names(links, rundir)}"
        yield warning(said, "put the files themselves there.")


def _files(rundir: Path) -> Iterator[Path]:
    """Yield the files in the run directory itself. Event files are in folders below it, which nobody reads back."""
    with os.scandir(rundir) as entries:
        yield from (Path(entry.path) for entry in entries if not entry.is_dir(follow_symlinks=False))


def _names(paths: Iterable[Path], rundir: Path) -> str:
    names = sorted(str(path.relative_to(rundir)) for path in paths)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more} in {rundir}"


def _chown(rundir: Path, user: User) -> str:
    return f"`chown -R {user.uid} {shlex.quote(str(rundir))}`."
