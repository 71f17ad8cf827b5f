"""The only place that spells a path inside a run directory."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainerd.errors import ConfigError
from trainerd.system import safe_paths
from trainerd.system.absolute import absolute
from trainerd.system.durable_files import storage

CHECKPOINT_BASENAME = "model.ckpt"
WORKERS = "workers"  # the folder of those that are not the chief
_STEP = "(?:0|[1-9][0-9]*)"  # as a file's name has it: one name for a step


class _Entry:
    """The path of an entry of a run directory, as an attribute of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, rundir: RunDirectory, kind: type[RunDirectory]) -> Path:
        return rundir.path / self._name


@dataclass(frozen=True)
class RunDirectory:
    """All that one run leaves on disk, under one folder (`logdir`).

    One class, since each of its methods is the path of one file.

    Args:
      path: the folder, absolute.
      basename: the first part of every checkpoint's name.
      given: the folder as a program names it. Default: its path.

    Raises:
      ConfigError: the folder is a URL, or the basename none, or one that TensorFlow could not read.
    """

    path: Path
    basename: str = CHECKPOINT_BASENAME
    given: str = field(default="", compare=False)

    @classmethod
    def of(cls, given: str | os.PathLike[str], basename: str = CHECKPOINT_BASENAME) -> RunDirectory:
        """Return the run directory of a folder that a program names.

        Raises:
          ConfigError: see the class.
        """
        return cls(absolute(Path(given)), basename, os.fspath(given))

    def __post_init__(self) -> None:
        if mistake := url_mistake(self.path):
            raise ConfigError(f"logdir: {mistake}")
        if not self.basename or self.basename.startswith(".") or set(self.basename) & set("*?[\\/"):
            raise ConfigError(
                f"checkpoint_basename {self.basename!r} cannot be a file name: leave out / * ? [ \\ and a dot at its "
                "start."
            )

    def create(self) -> None:
        """Make the folder and its missing parents.

        Raises:
          ConfigError: TensorFlow could not read what is written there.
          StorageError: it cannot be made.
        """
        if mistake := logdir_mistake(self.path):
            raise ConfigError(f"logdir: {mistake}")
        with storage(f"make the run directory {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)

    @property
    def save_path(self) -> str:
        """The path that the checkpoints' names begin with, in the form in which the program names the folder."""
        return os.path.join(self.given or str(self.path), self.basename)  # noqa: PTH118, which would spell it differently

    def worker(self, rank: int) -> RunDirectory:
        """Return the folder of a worker that is not the chief: its lock, log and state are there."""
        return RunDirectory(self.path / WORKERS / str(rank), self.basename)

    def workers(self) -> list[RunDirectory]:
        """Return the folders of the workers that are not the chief, as far as they are on this machine."""
        folder = self.path / WORKERS
        with contextlib.suppress(OSError):
            ranks = [int(name) for name in safe_paths.names(folder) if name.isascii() and name.isdecimal()]
            found = [self.worker(rank) for rank in sorted(ranks)]
            return [each for each in found if safe_paths.is_folder(each.path)]  # a link may lead to another run
        return []

    # The file that the chief writes while the workers gather; workers that share the folder read it.
    gathering = _Entry(".gathering")
    # The file whose flock says that a process trains here; it names that process.
    lock = _Entry("lock")
    # The state of the run, for `trainerd status`.
    state = _Entry("state.json")
    # The file to touch for a pause: the run saves and exits at the next boundary.
    pause = _Entry("pause")
    # The file to touch for a save: the run saves at the next boundary and continues.
    save = _Entry("save")
    # A folder into which a group may put `pause` and `save`; see `request_files.open_to_group`.
    requests = _Entry("requests")
    # The file that names numbers, such as the learning rate, that the job is to take at the next boundary.
    set_request = _Entry("set")
    # The file with the step to which the run goes back, at the next boundary or at the next start.
    rollback = _Entry("rollback")
    # The file that lists what a rollback under way moves.
    rollback_moves = _Entry(".rollback.json")
    # The same file when what lies ahead is moved, and checkpoints of the target's line are to return.
    rollback_returns = _Entry(".rollback-returns.json")
    # The file to touch before a start to resume although the dataset is not the one whose position was saved.
    accept_changes = _Entry("accept-changes")
    # The file to touch before a start to resume although the newest checkpoint is of another job.
    accept_job = _Entry("accept-job")
    # The log of all that trained here, whatever started it.
    log = _Entry("trainerd.log")

    @property
    def events(self) -> Path:
        """The file of the run's events, for `trainerd events`. If version 0.2.0 has left it, it has its old name."""
        new, old = self.path / "run-events.jsonl", self.path / "events.jsonl"
        return old if not os.path.lexists(new) and os.path.lexists(old) else new

    def rename_old_files(self) -> None:
        """Rename what version 0.2.0 named otherwise. Programs take all that `glob("events*")` finds for event files."""
        old = self.events
        with contextlib.suppress(OSError):
            if old.name == "events.jsonl":
                safe_paths.rename(old, old.with_name(f"run-{old.name}"))

    # What the process says of itself that copies the run elsewhere, and the file whose flock says that there is one.
    copy = _Entry("copy.json")
    copying = _Entry(".copying")
    # The file whose flock serializes the writers of small files; see `shared_files.writing`.
    writing = _Entry(".writing")
    # TensorFlow's text file that names the newest checkpoint.
    checkpoint_state = _Entry("checkpoint")
    # The folder of checkpoints that do not verify.
    quarantine = _Entry("quarantine")
    # The folder of pinned checkpoints whose step was reached again after the run had gone back.
    replaced = _Entry("replaced")
    # The file that says which run this one was forked from.
    origin = _Entry("fork.json")
    # The folder of the earlier lines of the run: what lay ahead each time that it went back.
    lines = _Entry("lines")

    def line(self, number: int) -> Path:
        """Return the folder of one earlier line. Its checkpoints have the names that they had in the run directory."""
        return self.lines / str(number)

    def prefix(self, step: int) -> Path:
        """Return TensorFlow's name of the checkpoint of a step: the path without `.index`."""
        return self.path / f"{self.basename}-{step}"

    def index(self, step: int) -> Path:
        """Return the index of the checkpoint of a step, as TensorFlow names it."""
        return self.path / f"{self.basename}-{step}.index"

    def step_of(self, name: str) -> int | None:
        """Return the step of the checkpoint whose prefix has this name; None if the store would give no such name."""
        match = re.fullmatch(rf"{re.escape(self.basename)}-({_STEP})", name)
        return int(match[1]) if match else None

    def manifest(self, step: int) -> Path:
        """Return the path of the manifest of a step. Its checkpoint exists if this file does."""
        return self.path / f"{self.basename}-{step}.json"

    def evaluations(self, step: int) -> Path:
        """Return the results of evaluations of the checkpoint of a step."""
        return self.path / f"{self.basename}-{step}.evaluations.json"

    def evaluated(self) -> set[int]:
        """Return the steps that have results of evaluations."""
        return set(self._steps_of(r"evaluations\.json"))

    def pin(self, step: int) -> Path:
        """Return the path of a file that keeps the checkpoint of a step from being deleted."""
        return self.path / f"{self.basename}-{step}.pin"

    def pinned(self) -> set[int]:
        """Return the steps that are pinned, whether they have a checkpoint or not."""
        return set(self._steps_of("pin"))

    def deletion(self, step: int) -> Path:
        """Return the path that the manifest has while the checkpoint of its step is deleted."""
        return self.path / f".deleting-{step}.json"

    def deletions(self) -> list[int]:
        """Return the steps whose deletion was cut short."""
        matches = (re.fullmatch(rf"\.deleting-({_STEP})\.json", name) for name in self._names())
        found = sorted(int(match[1]) for match in matches if match)
        with storage(f"read {self.path}"):
            return [step for step in found if safe_paths.is_file(self.deletion(step))]

    def aside(self, step: int) -> Path:
        """Return the folder of a step's checkpoint while another one of the same step replaces it."""
        return self.path / f".replacing-{step}"

    def asides(self) -> list[int]:
        """Return the steps whose replacement was cut short."""
        return sorted(int(folder.name.removeprefix(".replacing-")) for folder in self._folders("replacing"))

    def staging(self, step: int) -> Path:
        """Return the folder in which the checkpoint of a step is written before it is published."""
        return self.path / f".saving-{step}"

    def stagings(self) -> list[Path]:
        """Return every staging folder that there is: after a start, those that a killed save has left."""
        return self._folders("saving")

    def _folders(self, what: str) -> list[Path]:
        found = [self.path / name for name in self._names() if re.fullmatch(rf"\.{what}-{_STEP}", name)]
        with storage(f"read {self.path}"):
            return [folder for folder in found if safe_paths.is_folder(folder)]

    def steps(self) -> list[int]:
        """Return the steps that have a manifest's file, newest first."""
        return self._steps_of("json")

    def steps_and_pins(self) -> tuple[list[int], set[int]]:
        """Return `steps` and `pinned`, at the cost of one of them."""
        names = self._names()
        return self._steps_of("json", names), set(self._steps_of("pin", names))

    def _steps_of(self, suffix: str, names: Sequence[str] | None = None) -> list[int]:
        pattern = re.compile(rf"{re.escape(self.basename)}-({_STEP})\.{suffix}")
        matches = (pattern.fullmatch(name) for name in (self._names() if names is None else names))
        return sorted((int(match[1]) for match in matches if match), reverse=True)

    def _names(self) -> list[str]:
        with storage(f"read {self.path}", missing_ok=True):
            return safe_paths.names(self.path)
        return []

    def unmanaged_checkpoints(self) -> list[str]:
        """Return the names of the indexes of TensorFlow checkpoints here that are not of this run.

        They have no manifest, or a name that the store would not give them, such as one with another basename.

        A checkpoint that is being published has no manifest yet, but a staging folder: it is the run's.
        """
        names = [name for name in self._names() if name.endswith(".index")]
        return [name for name in names if not self._is_ours(name.removesuffix(".index"))]

    def _is_ours(self, name: str) -> bool:
        step = self.step_of(name)
        return step is not None and (safe_paths.exists(self.staging(step)) or safe_paths.exists(self.manifest(step)))


def url_mistake(path: Path) -> str | None:
    """Return why a URL such as gs://bucket/run cannot be a run directory; None if TensorFlow sees no URL in it."""
    named = [folder for folder in (path, *path.parents) if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+:", folder.name)]
    if named and not named[-1].exists():  # else it is a folder's name after all
        return (
            f"{path} is made of a URL. A run directory is a folder of this machine, whose file system can put it on "
            "disk: give its path."
        )
    return None


def logdir_mistake(path: Path) -> str | None:
    """Return why a folder with this path cannot be a run directory; None if it can."""
    if "\0" in str(path):
        return f"{str(path)!r} has a NUL in it, which no path has."
    if mistake := url_mistake(path):
        return mistake
    if bad := sorted(set(str(path)) & set("*?[\\")):
        return (
            f"{path} has {' and '.join(bad)} in it. TensorFlow reads the names of checkpoints as patterns, and would "
            "not find them there. Choose another name."
        )
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return f"{str(path).encode(errors='backslashreplace').decode()} is not UTF-8, which TensorFlow needs."
    return None
