"""The files of a run that are copied beside its checkpoints: events, curves, evaluations, pins, the config, the job."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainerd.checkpoints.manifest import Manifest
from trainerd.config import edit
from trainerd.config.bare_script import is_script
from trainerd.config.fingerprint import PROGRAM_SOURCE, SOURCE
from trainerd.config.parse import NAME
from trainerd.config.schema import Config
from trainerd.job.source import names_of
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage
from trainerd.system.regular_files import open_to_read

_EVENTS = "events.out.tfevents."
_NOT_COPIED = {"lines", "quarantine", "replaced", "requests", "workers"}
_DEPTH = 3  # of folders with event files, such as those of evaluations
_RUN = "run"  # the run directory of a fetched config whose own lies outside of its folder


@dataclass(frozen=True)
class JobFiles:
    """The config and the source of a job.

    Attributes:
      folder: the folder of the job; None for a job that is of a package.
      text: the config, whose run directory is in its folder.
      logdir: that run directory, relative to the folder.
    """

    folder: Path | None
    text: str
    logdir: str

    @classmethod
    def of(cls, config: Config, text: str) -> JobFiles:
        """Return the files of a job.

        Args:
          config: its config.
          text: the text of that, in TOML.
        """
        folder = _folder_of(config)
        is_inside = folder is not None and config.rundir != folder and config.rundir.is_relative_to(folder)
        logdir = str(config.rundir.relative_to(folder)) if is_inside and folder is not None else _RUN
        changes = edit.read_changes([f"logdir={logdir}"])
        if config.job_folder is not None:
            changes["job_folder"] = '"."'
        changes |= edit.as_toml({f"params.{name}": value for name, value in config.params.items()})
        if config.script.adopt:
            changes["script.adopt"] = "true"
        if config.script.arguments:
            changes["script.arguments"] = json.dumps(list(config.script.arguments))
        return cls(folder, edit.changed(text, changes), logdir)

    def paths(self, newest: Manifest | None) -> dict[str, Path]:
        """Return the files that the job was imported from, as the newest checkpoint names them, and as they are now.

        A source file may be a link to a file that several jobs share. Then the path is the one of that file.
        """
        if self.folder is None or newest is None:
            return {}
        source = newest.fingerprint.get(SOURCE) or newest.fingerprint.get(PROGRAM_SOURCE) or ""
        names = [name for name in names_of(source) if is_inside(name) and name != NAME]
        return {name: _followed(self.folder / name) for name in names}


def _folder_of(config: Config) -> Path | None:
    """Return the folder of a job: that of its script, or the one from which the paths of its config start."""
    if config.path is None:
        return None
    return config.path.parent if is_script(config.path) else config.folder


def _followed(path: Path) -> Path:
    """Return the path that a link leads to; the link itself if that is not known, so that a read has the error."""
    with contextlib.suppress(OSError):
        return safe_paths.followed(path)
    return path


def is_inside(name: str) -> bool:
    """Return whether a path is relative and leads to no other folder than one below."""
    parts = name.split("/")
    return all(parts) and not {".", ".."} & set(parts) and "\0" not in name


def files_of_run(rundir: RunDirectory) -> dict[str, Path]:
    """Return the files of a run directory that are copied, beside its checkpoints, by their names there.

    Raises:
      StorageError: it cannot be read.
    """
    with storage(f"read {rundir.path}"):
        names = safe_paths.names(rundir.path)
        own = {path.name for path in (rundir.state, rundir.events, rundir.log, rundir.origin)}
        found = [name for name in names if name in own or name == "graph.pbtxt" or name.startswith(_EVENTS)]
        found += [name for name in names if name.endswith((".evaluations.json", ".pin"))]
        found += [name for name in names if name.startswith("evaluations") and name.endswith(".json")]
        found += _event_files_below(rundir.path, "", _DEPTH)
    return {name: rundir.path / name for name in sorted(found)}


def _event_files_below(root: Path, folder: str, depth: int) -> Iterator[str]:
    """Yield the event files in the folders of a folder."""
    for name in safe_paths.names(root / folder) if depth else ():
        path = f"{folder}{name}"
        if not name.startswith(".") and path not in _NOT_COPIED and safe_paths.is_folder(root / path):
            yield from (f"{path}/{each}" for each in safe_paths.names(root / path) if each.startswith(_EVENTS))
            yield from _event_files_below(root, f"{path}/", depth - 1)


def is_event_file(name: str) -> bool:
    """Return whether a file of a run is one that TensorBoard reads."""
    return PurePosixPath(name).name.startswith(_EVENTS)


@contextlib.contextmanager
def opened_files(rundir: RunDirectory, manifest: Manifest) -> Iterator[dict[str, int]]:
    """Open all files of a checkpoint while the block runs, so that a deletion does not take them.

    Raises:
      OSError: one cannot be opened; FileNotFoundError if the checkpoint was deleted.
    """
    with contextlib.ExitStack() as stack:
        found = {}
        for name in manifest.files:
            try:
                found[name] = stack.enter_context(open_to_read(rundir.path / name)).fileno()
            except FileNotFoundError:
                if not name.endswith(".meta"):
                    raise
        yield found
