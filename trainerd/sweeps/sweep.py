"""A sweep on disk: a folder with sweep.toml and the config of each point, and what its runs have reached."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

from trainerd.config import edit
from trainerd.config import parse as configs
from trainerd.config.bare_script import is_script, keys_of
from trainerd.config.metric_goals import Best
from trainerd.config.schema import Config
from trainerd.errors import UsageError
from trainerd.history.curves import read_curve
from trainerd.history.timeline import best_of, present_line
from trainerd.job.params import nearest
from trainerd.job.written_params import written_params
from trainerd.rundir.names import RunIdentity, check_name
from trainerd.rundir.paths import RunDirectory, logdir_mistake
from trainerd.rundir.runs import ListedRun, RunReader
from trainerd.rundir.state import Phase
from trainerd.sweeps import rungs, space, spec
from trainerd.sweeps.adaptive import Study, require_optuna
from trainerd.sweeps.halving import HalvingStep, PointResult, Rungs
from trainerd.sweeps.spec import SweepSpec
from trainerd.system.absolute import absolute
from trainerd.system.durable_files import storage, write_atomic, write_durable
from trainerd.system.staging import put_in_place, require_free, staged

SWEEPS = "sweeps"
_POINT = re.compile(r"\d{3,}\.toml")


@dataclass(frozen=True)
class SweepPoint:
    """One point of a sweep.

    Attributes:
      name: the number of the point, such as "007".
      config: its config.
      rundir: its run directory.
      values: each key that the sweep sets, with its value in the config.
    """

    name: str
    config: Path
    rundir: RunDirectory
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """A sweep.

    Attributes:
      folder: its folder.
      spec: what was asked for.
    """

    folder: Path
    spec: SweepSpec

    @classmethod
    def read(cls, folder: Path) -> Sweep:
        """Read a sweep.

        Raises:
          ConfigError: the folder is not one, or its sweep.toml holds mistakes.
        """
        folder = absolute(folder)
        return cls(folder, SweepSpec.read(folder))

    @property
    def name(self) -> str:
        """The name of the sweep."""
        return self.folder.name

    @property
    def is_adaptive(self) -> bool:
        """True if each point is chosen by what those before have reached."""
        return self.spec.sampler == "optuna"

    def points(self) -> list[SweepPoint]:
        """Return the points, in their order. A person may change their configs, and delete some.

        Raises:
          ConfigError: a config is wrong.
        """
        keys = list(space.read_space(self.spec.set))
        found = []
        for name in self._names():
            path = self.folder / f"{name}.toml"
            config = configs.load(path)
            values = {key: _value(config, key) for key in keys}
            found.append(SweepPoint(name, path, RunDirectory(config.rundir), values))
        return found

    def _names(self) -> list[str]:
        """Return the names of the points whose configs are there, in their order."""
        with storage(f"read {self.folder}"):
            names = [each.stem for each in self.folder.iterdir() if _POINT.fullmatch(each.name)]
        return sorted(names, key=lambda each: (int(each), each))

    def result(self, point: SweepPoint) -> PointResult:
        """Return what the run of a point has reached, as its files say.

        Raises:
          StorageError: they cannot be read.
        """
        return result_of(RunReader(point.rundir.path).read(), self.spec)

    def grow(self, results: Mapping[str, PointResult], at_a_time: int = 1) -> list[SweepPoint]:
        """Make the next points of a sweep whose points Optuna chooses; those of others are there from the beginning.

        Args:
          results: what each point has reached, by its name; see `result`.
          at_a_time: how many points may be under way.

        Returns:
          The points that are new.

        Raises:
          ConfigError: the config of the sweep is wrong.
          UsageError: Optuna is not installed.
          StorageError: a config or the study cannot be written.
        """
        goal = self.spec.goal()
        if not self.is_adaptive or goal is None:
            return []
        base, new = self._base(), set[str]()
        text = _text_of(base, self.folder)

        def make(number: int, point: space.Point) -> None:
            called = f"{number + 1:03d}"
            path = self.folder / f"{called}.toml"
            with storage(f"write {path}"):
                write_atomic(path, _point_text(text, base, self.folder, called, point, goal).encode())
            new.add(called)

        by_number = {int(name) - 1: each for name, each in results.items()}
        study = Study(self.folder, space.read_space(self.spec.set), goal, self.spec.seed)
        with contextlib.ExitStack() as stack:
            with storage(f"lock {self.folder}"):
                fcntl.flock(stack.enter_context((self.folder / ".lock").open("w")), fcntl.LOCK_EX)
            # Another process may have made points since these results were read.
            there = {int(name) - 1: PointResult() for name in self._names()}
            study.grow(there | by_number, make, most=self.spec.count or 0, at_a_time=at_a_time)
        return [point for point in self.points() if point.name in new]

    def _base(self) -> Config:
        """Read the config that the points are made of. The folder of a script is the one that the sweep was made in."""
        base = configs.load(self.folder / self.spec.base)
        is_bare = base.path is not None and is_script(base.path)
        return replace(base, folder=self.folder.parent.parent) if is_bare else base

    def next(self, results: Mapping[str, PointResult]) -> dict[str, int | None]:
        """Return the points that are to train now, each with the step to which it trains: `--max-steps`.

        None is the end that the config of the point names. A point that is not there waits, or is over. See `decide`.

        Args:
          results: what each point has reached, by its name; see `result`.

        Raises:
          ConfigError, StorageError: the decisions cannot be read or written.
        """
        if (halved := self.decide(results)) is not None:
            return dict(halved.targets)
        return {name: None for name, each in results.items() if not (each.is_failed or each.is_finished)}

    def decide(self, results: Mapping[str, PointResult]) -> HalvingStep | None:
        """Return the present step of the successive halving, and record the rungs that it decides for all later calls.

        Retention may thin the checkpoints by which they were.

        Args:
          results: what each point has reached, by its name; see `result`.

        Returns:
          The step; None if the sweep has no rungs.

        Raises:
          ConfigError, StorageError: the decisions cannot be read or written.
        """
        before = rungs.read(self.folder)
        halved = self.halved(results, before)
        if halved is not None and halved.decided.keys() != before.keys():
            rungs.write(self.folder, halved.decided)
        return halved

    def halved(self, results: Mapping[str, PointResult], decided: Rungs | None = None) -> HalvingStep | None:
        """Return the present step of the successive halving; None if the sweep has none.

        Args:
          results: what each point has reached, by its name; see `result`.
          decided: the decisions of earlier rungs. None: those of rungs.toml.

        Raises:
          ConfigError: the decisions of earlier rungs cannot be read.
        """
        halving = self.spec.halving()
        if halving is None:
            return None
        return halving.next(results, rungs.read(self.folder) if decided is None else decided)


def make_sweep(config_path: Path, wanted: SweepSpec, name: str | None) -> Sweep:
    """Make the folder of a sweep beside its config: whole, or not at all.

    Args:
      config_path: the config, or a script without one.
      wanted: what is asked for; its `base` does not matter.
      name: of the sweep, and of its folder. None: that of the config, and the first free number.

    Raises:
      ConfigError: the config is wrong, or becomes wrong by a value.
      UsageError: the space or the name is wrong, or another sweep has the name.
      StorageError: it cannot be written.
    """
    base = configs.load(config_path)
    assert base.path is not None
    wanted.require_sound()
    axes, points = space.read_space(wanted.set), wanted.choose()
    if wanted.rungs and (ends := {"max_steps", "target"} & axes.keys()):  # sweeps of earlier versions may have both
        raise UsageError(f"--set {min(ends)} and --rungs contradict each other: a run ends at its rungs. Give one.")
    _require_taken(base, axes)
    parent = (base.folder if is_script(base.path) else base.path.parent) / SWEEPS
    folder = parent / (_free_name(parent, _own_name(base)) if name is None else _checked(name))
    if mistake := logdir_mistake(folder):
        raise UsageError(f"--name: {mistake}")
    require_free(folder, f"Choose another --name. `trainerd sweep next {folder} --queue` adds its runs to the queue.")
    files = {spec.NAME: _with_base(wanted, base.path, folder).to_toml()}
    text, digits = _text_of(base, folder), max(3, len(str(len(points))))
    if wanted.sampler == "optuna":  # which chooses the points later: the first values of all keys show mistakes now
        require_optuna()
        _point_text(text, base, folder, "001", {key: axis.at(0.0) for key, axis in axes.items()}, wanted.goal())
    for number, point in enumerate(points, 1):
        called = f"{number:0{digits}d}"
        files[f"{called}.toml"] = _point_text(text, base, folder, called, point, wanted.goal())
    with storage(f"make {folder}"), staged(folder) as staging:
        for file, content in files.items():
            write_durable(staging / file, content.encode())
        put_in_place(staging, folder)
    return Sweep.read(folder)


def _require_taken(base: Config, keys: Iterable[str]) -> None:
    """Require that the job takes the parameters, as far as its source says: every run would fail otherwise.

    Raises:
      UsageError: it does not take one.
    """
    module, _, function = base.entry.partition(":")
    source = base.folder / f"{module.replace('.', '/')}.py" if function else base.script_path
    if (names := written_params(source, function)) is None:
        return
    for key in keys:
        table, _, name = key.partition(".")
        if table == "params" and name not in names:
            raise UsageError(f"--set {key}: the job {base.entry!r} has no such parameter.{nearest(name, names)}")


def _checked(name: str) -> str:
    try:
        check_name(f"{name}-{space.MOST_POINTS}")  # of its last point
    except ValueError as error:
        raise UsageError(f"--name: {error}, got {name!r}.") from None
    return name


def _own_name(base: Config) -> str:
    """Return what the sweeps of a config are called: the queue has those of all projects."""
    return RunIdentity(base.folder, base.name or "").own_name


def _free_name(parent: Path, own: str) -> str:
    """Return the first name with a number that no sweep has."""
    number = 1
    while os.path.lexists(parent / f"{own}-{number}"):
        number += 1
    return _checked(f"{own}-{number}")


def _with_base(wanted: SweepSpec, base: Path, folder: Path) -> SweepSpec:
    return replace(wanted, base=os.path.relpath(base, folder))


def _text_of(base: Config, folder: Path) -> str:
    """Return the text of the config, so that it means the same in the folder of the sweep."""
    assert base.path is not None
    place = {"job_folder": os.path.relpath(base.folder, folder)}
    if is_script(base.path):
        keys = keys_of(base.path) | {"entry": os.path.relpath(base.path, base.folder)}
        return edit.changed(tomlkit.dumps(keys), edit.as_toml(place))
    with storage(f"read {base.path}"):
        return edit.changed(base.path.read_text(encoding="utf-8-sig"), edit.as_toml(place))


def _point_text(text: str, base: Config, folder: Path, called: str, point: space.Point, goal: Best | None) -> str:
    """Return the config of a point. Its run keeps the checkpoint that is the best by the metric of the sweep.

    Raises:
      ConfigError: a value makes it wrong.
    """
    changes = edit.as_toml(point)
    if wrong := changes.keys() & {"logdir", "job_folder", "name"}:
        raise UsageError(f"--set {min(wrong)}: a sweep gives each point its own. Leave it out.")
    places = {
        "logdir": os.path.relpath(folder / called, base.folder),
        "name": f"{folder.name}-{called}",
        "tags": [*base.tags, *([folder.name] if folder.name not in base.tags else [])],
        **({"checkpoint.best": str(goal)} if goal is not None else {}),
        **edit.copy_beside(base, f"{folder.name}-{called}"),
    }
    made = edit.changed(text, edit.as_toml(places) | changes)
    with edit.blaming(changes):
        configs.parse(tomllib.loads(made), path=folder / f"{called}.toml")
    return made.rstrip("\n") + "\n"


def _value(config: Config, key: str) -> Any:
    """Return the value of a key; None if the config has none."""
    found: Any = config
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    return found


def result_of(run: ListedRun, wanted: SweepSpec) -> PointResult:
    """Return what a run has reached, for the sweep that it is of.

    Raises:
      StorageError: its files cannot be read.
    """
    state = run.state
    if state is None:
        return PointResult()
    is_at_rung = state.max_steps in wanted.rungs and state.step >= (state.max_steps or 0)
    finished = state.phase is Phase.FINISHED and not is_at_rung
    is_failed = state.phase is Phase.FAILED
    saved = state.last_checkpoint.step if state.last_checkpoint is not None else 0
    halving = wanted.halving()
    if halving is None:
        goal = wanted.goal()
        best = best_of(present_line(run.rundir), goal) if goal is not None and finished else None
        value = best.metrics[goal.metric] if best is not None and goal is not None else math.nan
        return PointResult(saved, {}, is_failed, finished, value)
    reached = [rung for rung in halving.rungs if saved >= rung or finished]
    at_rungs = {rung: metric_at(run.rundir, rung, halving.goal) for rung in reached}
    return PointResult(saved, at_rungs, is_failed, finished)


def metric_at(rundir: RunDirectory, step: int, goal: Best) -> float:
    """Return the value of a metric at a step, or the last one before it: of the checkpoint there, or else of the curve.

    NaN if there is none.

    Raises:
      StorageError: the files of the run cannot be read.
    """
    for entry in present_line(rundir):
        if entry.step == step:
            return entry.metrics.get(goal.metric, math.nan)
    curve = read_curve(rundir, goal.metric)
    before = [value for at, value in zip(curve.steps, curve.values, strict=True) if at <= step]
    return before[-1] if before else math.nan
