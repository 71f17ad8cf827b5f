"""The runs of this user on this machine: each is remembered as it starts, in a file of its own.

The files are in `trainerd/runs` of the user's state folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from trainerd.rundir.paths import WORKERS, RunDirectory
from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.regular_files import read_regular
from trainerd.system.xdg import state_home

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartOptions:
    """The options of a start that change its config.

    Attributes:
      set: other values of keys, each as KEY=VALUE.
      max_steps, forever: when training ends, in place of the config's `max_steps` and `target`.
      adopt, arguments: how a script is run, in place of the keys of the table [script].
    """

    set: tuple[str, ...] = ()
    max_steps: int | None = None
    forever: bool = False
    adopt: bool = False
    arguments: tuple[str, ...] = ()


PLAIN = StartOptions()


@dataclass(frozen=True)
class StartedScript:
    """The last start of a script without a config.

    Attributes:
      folder: the working directory.
      adopt: whether its `model.fit` was replaced.
      arguments: its own.
    """

    folder: Path
    adopt: bool
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class RegisteredRun:
    """A run that was started here.

    Attributes:
      path: its run directory.
      config: its config, or a script that has none; None for a program with a loop of its own, and for the job that
        ships.
      script: how that script was started; None if there is a config.
      options: the options of its last start.
    """

    path: Path
    config: Path | None = None
    script: StartedScript | None = None
    options: StartOptions = PLAIN


def remember(
    rundir: RunDirectory,
    config: Path | None = None,
    script: StartedScript | None = None,
    options: StartOptions = PLAIN,
) -> None:
    """Remember a run that starts. If that cannot be written, the run trains all the same.

    A program that starts itself has no config. What is remembered of an earlier start under the daemon stays.
    """
    path = rundir.path.parent.parent if rundir.path.parent.name == WORKERS else rundir.path
    try:
        _write((config is None and _read(_file(path))) or RegisteredRun(path, config, script, options))
    except (OSError, RuntimeError) as error:  # there is no home
        log.debug("%s is not remembered: %s", path, error)


def forget(path: Path) -> bool:
    """Forget a run, until it starts again. Returns whether it was known.

    Raises:
      StorageError: it cannot be written.
    """
    file = _file(path)
    if not file.exists():
        return False
    with storage(f"forget {path}"):
        file.unlink(missing_ok=True)
    return True


def known() -> list[RegisteredRun]:
    """Return the runs whose folders are there, by their paths. Those whose folders were removed are forgotten.

    A folder counts as removed if the one that it was in is there: otherwise a disk may be late.

    Raises:
      StorageError: they cannot be read.
    """
    found: list[RegisteredRun] = []
    with storage(f"read {folder()}", missing_ok=True):
        for file in folder().glob("*.json"):
            run = _read(file)
            if run is not None and _is_folder(run.path):
                found.append(run)
            elif run is None or _is_folder(run.path.parent):
                file.unlink(missing_ok=True)
    return sorted(found, key=lambda run: run.path)


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  no error where it may not be read


def folder() -> Path:
    """Return the folder of these files."""
    return state_home() / "trainerd" / "runs"


def _file(path: Path) -> Path:
    return folder() / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"


def _write(run: RegisteredRun) -> None:
    file = _file(run.path)
    if _read(file) == run:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    said: dict[str, Any] = {"logdir": str(run.path)}
    said["config"] = str(run.config.absolute()) if run.config is not None else None
    if (script := run.script) is not None:
        said["script"] = {"folder": str(script.folder), "adopt": script.adopt, "arguments": script.arguments}
    said["options"] = asdict(run.options)
    write_atomic(file, json.dumps(said).encode())


def _read(file: Path) -> RegisteredRun | None:
    """Return the run that a file names; None if the file is missing or damaged."""
    try:
        said = json.loads(read_regular(file))
        script = None
        if found := said.get("script"):
            arguments = tuple(map(str, found["arguments"]))
            script = StartedScript(Path(found["folder"]), bool(found["adopt"]), arguments)
        options = msgspec.convert(said.get("options", {}), StartOptions)  # an earlier version has none
        return RegisteredRun(Path(said["logdir"]), Path(said["config"]) if said["config"] else None, script, options)
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None
