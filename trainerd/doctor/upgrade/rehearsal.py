"""Rehearses an upgrade: a copy of the newest checkpoint is trained on with another Python, and with this one."""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from trainerd import text
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well
from trainerd.doctor.upgrade.python import Python, TimedOutError, TrialDifference
from trainerd.errors import StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import free_bytes

STEPS = 20
LIMIT_SECS = 110.0  # for all of it: the command promises two minutes
_COPIES = 4  # one of the checkpoint, and one for each trial's end
_CLOSE = 0.01  # as a share of the largest element
_NICE = 10  # where the run itself trains meanwhile
_EVALUATION = "val_"
_STAY = "stay with the versions that are installed here"


def rehearse(facts: Facts, other: Python) -> Iterator[Finding]:
    """Train some steps from the newest checkpoint with this Python and with another one, in a temporary folder.

    Args:
      facts: the run; it is left as it is.
      other: the other Python.
    """
    newest = facts.newest
    if newest is None:
        yield warning("a rehearsal resumes from a checkpoint, and this run has none yet", "train until the first one.")
        return
    if (short := _memory_short(facts, psutil.virtual_memory().available)) is not None:
        yield warning(short, "pause the run before, or type this on a machine with more memory.")
        return
    if facts.config.cluster.workers:
        yield warning("a run of several workers is not rehearsed", "try it on a fork: `trainerd fork`.")
        return
    with tempfile.TemporaryDirectory(prefix="trainerd-doctor-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        if (free := free_bytes(folder)) < _COPIES * newest.size:
            needed = f"{text.size(_COPIES * newest.size)} are needed in {folder.parent}, and {text.size(free)} are free"
            yield warning(needed, "set TMPDIR to a folder with more room.")
            return
        try:
            yield _Rehearsal(facts, newest, folder).of(other)
        except TimedOutError as error:
            said = f"it was not done after {text.seconds(LIMIT_SECS)}: {error}"
            yield warning(said, "train a fork of the run there: `trainerd fork` makes one.")


def _memory_short(facts: Facts, available: int) -> str | None:
    """Return a message if a second process of the job's size does not fit beside the run; None if it does."""
    needed = facts.memory_bytes
    if facts.pid is None or needed is None or needed <= available:
        return None
    return f"the run trains with {text.size(needed)} of memory, and {text.size(available)} are left for a second one"


class _Rehearsal:
    """Trials of one checkpoint, in one folder.

    Args:
      facts: the run.
      newest: its newest checkpoint.
      folder: where the trials are.
    """

    def __init__(self, facts: Facts, newest: Manifest, folder: Path) -> None:
        self._facts = facts
        self._newest = newest
        self._folder = folder
        self._until = time.monotonic() + LIMIT_SECS
        self._nice = _NICE if facts.pid is not None else 0
        self._here = Python(Path(sys.executable), nice=self._nice)
        self._copied = self._copy(facts.rundir, "here")

    def of(self, other: Python) -> Finding:
        """Return the verdict on another Python."""
        here, there = self._copied, self._copy(self._copied, "there")
        if error := self._train(self._here, here):
            cure = "read `trainerd status` and the log; the other one was not tried."
            return problem(f"not even this Python resumes from step {self._newest.step}: {error}", cure)
        if error := self._train(replace(other, nice=self._nice), there):
            return problem(f"impossible with {other}: {error}", f"{_STAY}, or fix what it says.")
        steps = [_end(rundir).step for rundir in (here, there)]
        if steps[0] != steps[1]:
            said = f"impossible with {other}: it ends at step {steps[1]}, and this Python at {steps[0]}"
            return problem(said, f"{_STAY}.")
        done = steps[0] - self._newest.step
        if not done:
            said = f"{other} reads step {steps[0]}, and no step is left to train"
            return warning(said, "give the dataset more batches, and type this again.")
        far = self._compare(here, there)
        trials = f"{done} steps after step {self._newest.step} with {other}"
        if not far.where:
            same = f"bit for bit: {far.count} variables and the metrics"
            return well(f"{trials} equal those of this Python, {same}")
        return self._judge(trials, far)

    def _judge(self, trials: str, far: TrialDifference) -> Finding:
        """Return the finding for a difference, after a second trial with this Python: two of these may differ too."""
        again = self._copy(self._copied, "again")
        try:
            error = self._train(self._here, again)
            own = self._compare(self._copied, again) if not error else None
        except TimedOutError:  # the findings so far are reported
            own = None
        return judge(trials, far, own)

    # ------------------------------------------------------------------ trials

    def _copy(self, source: RunDirectory, name: str) -> RunDirectory:
        """Return a run directory with nothing but the newest checkpoint in it."""
        made = RunDirectory(self._folder / name, self._facts.rundir.basename)
        made.create()
        try:
            for file in self._newest.files:
                if manifests.is_needed(file) or (source.path / file).exists():
                    shutil.copyfile(source.path / file, made.path / file, follow_symlinks=False)
            manifests.verify(self._newest, made.path)
        except (FileNotFoundError, DamagedError) as error:
            step = self._newest.step
            raise StorageError(
                f"the checkpoint of step {step} is gone, or damaged: {error}. Run the command again."
            ) from error
        made.manifest(self._newest.step).write_bytes(self._newest.to_bytes())
        return made

    def _train(self, python: Python, rundir: RunDirectory) -> str:
        """Train from the checkpoint on. Returns the error; empty if there was none."""
        options = ["--logdir", str(rundir.path), "--max-steps", str(self._newest.step + STEPS)]
        if self._facts.config.path is not None:
            options += ["--config", str(self._facts.config.path)]
        return python.train(options, rundir, self._folder, self._left())

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _compare(self, one: RunDirectory, other: RunDirectory) -> TrialDifference:
        ours, theirs = _end(one), _end(other)
        found = self._here.compare(one.prefix(ours.step), other.prefix(theirs.step), self._folder, self._left())
        return max(found, furthest_metric(ours.metrics, theirs.metrics, found.count), key=_distance)


def _end(rundir: RunDirectory) -> Manifest:
    """Return the last checkpoint of a trial."""
    return manifests.read(rundir.manifest(rundir.steps()[0]))


def _distance(far: TrialDifference) -> tuple[float, bool]:
    return far.relative, bool(far.where)


def furthest_metric(one: Mapping[str, float], other: Mapping[str, float], count: int) -> TrialDifference:
    """Return the metric in which two trials differ most. Those of an evaluation are left out: it comes by the clock."""
    found = TrialDifference(0.0, "", count)
    for name in sorted(name for name in {*one, *other} if not name.startswith(_EVALUATION)):
        ours, theirs = one.get(name, math.nan), other.get(name, math.nan)
        if ours == theirs or (name in one and name in other and ours != ours and theirs != theirs):
            continue
        relative = abs(ours - theirs) / max(abs(ours), abs(theirs))  # one of them is not 0
        far = TrialDifference(relative if math.isfinite(relative) else math.inf, f"the metric {name}", count)
        found = max(found, far, key=_distance)
    return found


def judge(trials: str, far: TrialDifference, own: TrialDifference | None) -> Finding:
    """Return the finding for two trials that differ.

    Args:
      trials: which trials.
      far: how far that of the other Python is from that of this one.
      own: how far two trials with this Python are from each other; None if that could not be tried.
    """
    if own is None:
        repeats = "a second trial with this Python failed, or there was no time for it"
    elif not own.where:
        repeats = "two trials with this Python are the same, bit for bit"
    else:
        repeats = f"two trials with this Python differ too, by {own.relative:.2g} in {own.where}"
    said = f"{trials} differ from those of this Python, by {far.relative:.2g} at most, in {far.where}; {repeats}"
    if far.relative <= _CLOSE or (own is not None and own.where and far.relative <= 10 * own.relative):
        return warning(f"close: {said}", f"upgrade if that is near enough; for the same bits {_STAY}.")
    return problem(f"not close: {said}", f"{_STAY}, or find what has changed.")
