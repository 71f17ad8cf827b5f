"""The file state.json: the state of the run, as the CLI reads it without TensorFlow."""

from __future__ import annotations

import enum
import json
import math
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from trainerd.rundir.goodput import Goodput
from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.gpus import DeviceState
from trainerd.system.regular_files import read_regular
from trainerd.text import figure, printable, seconds, size

DAMAGED = "state.json is damaged: the next start rewrites it"
KILLED = "killed"  # a phase that no process can write
UNMANAGED = "Keras's own `fit` trains, which trainerd cannot pause or resume"
_SILENT_SECS = 3600.0  # after which a process of another machine, which cannot be seen, counts as gone
EPOCH = "epoch"  # the metric that counts the epochs that have ended
_LONGEST_ETA_SECS = 1e11  # some thousand years
LARGEST = 1 << 62
_LONGEST_HOST = 255  # characters

Param = str | bool | int | float | tuple[str | bool | int | float, ...]


class Phase(enum.StrEnum):
    """The phases of a process that trains."""

    GATHERING = "gathering"  # with the other workers of the cluster
    STARTING = "starting"
    RESTORING = "restoring"
    TRAINING = "training"
    UNMANAGED = "unmanaged"  # Keras's own `fit` trains, and trainerd sees none of its steps
    SAVING = "saving"
    EVALUATING = "evaluating"
    PAUSING = "pausing"
    FINISHING = "finishing"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def has_begun(self) -> bool:
        """True if something trains."""
        return self in (Phase.TRAINING, Phase.UNMANAGED)

    @property
    def is_before_training(self) -> bool:
        """True if the process has not come to its first step."""
        return self in (Phase.GATHERING, Phase.STARTING, Phase.RESTORING)

    @property
    def is_over(self) -> bool:
        """True if the process has ended."""
        return self in (Phase.PAUSED, Phase.FINISHED, Phase.FAILED)


@dataclass(frozen=True)
class LastCheckpoint:
    """The newest checkpoint that is durable on disk.

    Attributes:
      step: its global step.
      path: its prefix, as TensorFlow's readers take it.
      reason: why it was written.
      seconds: how long that took, from the boundary until it was durable; None of one that another process wrote.
      bytes: the size of its files.
      at: when it was durable, in seconds since 1970 (UTC).
    """

    step: int
    path: str
    reason: str
    seconds: float | None
    bytes: int
    at: float


@dataclass(frozen=True)
class MemoryTierState:
    """The newest state in memory, from which a start resumes if the process is killed.

    Attributes:
      step: its global step; None if there is none.
      at: when it was taken, in seconds since 1970 (UTC).
      bytes: the size of its files.
      path: the folder that they are in.
      off: why nothing is saved to memory now; empty if that is not so, or if it is turned off.
    """

    step: int | None = None
    at: float = 0.0
    bytes: int = 0
    path: str = ""
    off: str = ""


@dataclass(frozen=True)
class Answer:
    """The reply to requests that have an id.

    Attributes:
      ids: the ids of the requests.
      step: the step that was saved, or that the run went back to; None if the request failed.
      error: why it failed, or None.
    """

    ids: list[str]
    step: int | None
    error: str | None


@dataclass(frozen=True)
class Failure:
    """The run's last failure. The next checkpoint clears it.

    Attributes:
      step: the step that failed.
      phase: what the run was doing.
      error: the first line of the error, and of the job's own that led to it.
      times: how often it has failed at that step, one start after the other.
      at: when, in seconds since 1970 (UTC).
    """

    step: int
    phase: str
    error: str
    times: int
    at: float

    def __str__(self) -> str:
        """Return the error, and how often it came if more than once."""
        times = f"{self.times} times" if self.times > 1 else "once"
        return f"failed {times} at step {self.step}"


@dataclass(frozen=True)
class EvaluationSummary:
    """A summary of the checkpoints that an Experiment has evaluated.

    Attributes:
      count: how many checkpoints.
      best_step: the step of the one with the lowest loss; None if none has a loss.
      best: its metrics.
    """

    count: int
    best_step: int | None
    best: dict[str, float]


@dataclass(frozen=True)
class WorkerState:
    """The state of another worker of the cluster.

    Attributes:
      rank: its rank.
      host, pid: the process.
      step: the global step that it has reached.
      steps_per_sec: how fast it did the last steps, the waiting for others included; None before it is known.
      memory_bytes: its resident memory.
      seen_at: when it said so, in seconds since 1970 (UTC), by its own clock.
    """

    rank: int
    host: str
    pid: int
    step: int
    steps_per_sec: float | None
    memory_bytes: int
    seen_at: float

    @classmethod
    def read(cls, rank: int, said: Mapping[str, Any]) -> WorkerState:
        """Read the state that a worker reports of itself.

        Raises:
          ValueError: it is not a state, or state.json could not hold it.
        """
        found = msgspec.convert({**said, "rank": rank}, cls)
        numbers = (found.pid, found.step, found.memory_bytes, found.seen_at, found.steps_per_sec or 0.0)
        if len(found.host) > _LONGEST_HOST or not all(abs(each) <= LARGEST for each in numbers):
            raise ValueError("what a worker says of itself is out of range")
        return found

    def line(self, now: float) -> str:
        """Return the state in one line; `now` is in seconds since 1970 (UTC)."""
        rate = f", {self.steps_per_sec:,.4g} steps/s" if self.steps_per_sec else ""
        where = printable(" ".join(self.host.split()))
        seen = seconds(max(0.0, now - self.seen_at))
        return f"{where}, pid {self.pid}: step {self.step:,}{rate}, {size(self.memory_bytes)}, seen {seen} ago"


@dataclass(frozen=True)
class State:
    """One moment of a run.

    Attributes:
      phase: what the process is doing.
      pid, create_time: which process; `create_time` is in seconds since 1970 (UTC), as psutil gives it.
      uptime_at_start: the machine's uptime when the process started, in seconds: it distinguishes a process
        from another with its pid even when the wall clock was set in between.
      host: the name of its machine; empty if it is not known.
      step, max_steps: the global step, and where training ends (None: it does not).
      epochs, last_step: the epochs of a Keras model, and the step at which the last one ends; None if that is unknown.
      metrics: the last value of each metric; `val_NAME` for those of the evaluation.
      measured: the step at which each metric was measured, of those that a step does not return.
      steps_per_sec: the rate over the last seconds; None before it is known.
      last_checkpoint: the newest durable checkpoint; None before the first.
      memory_tier: the newest state in memory.
      save_model_secs: how many seconds lie between two checkpoints; None if the clock does not matter.
      saving: the step whose checkpoint is being written; None if none is.
      memory_bytes: the resident memory of the process.
      devices: the devices that train; empty if that is one CPU.
      warnings: what a person should know.
      error, exit_code: why the run failed, and what the process exits with; None otherwise.
      ended: why the run was paused, or is finished; None otherwise.
      failure: how the run failed last, in this start or an earlier one; None if a checkpoint was made since.
      run_id: tells this run from every other one, wherever its files are; its first start makes it. Empty if unknown.
      logdir, job: the run directory, and the entry that is trained.
      name, tags, notes: what the config says of the run, for a person; empty if it says nothing.
      params: the parameters of the job that the config or the command line gives; empty if there are none.
      evaluations: what an Experiment has evaluated; None for other jobs.
      answers: the replies to the last requests that had an id, the newest last.
      goodput: how the time of the run was spent.
      workers: the other workers of the cluster; empty for a run on one machine, and for a worker that is not the chief.
      at: when this was written, in seconds since 1970 (UTC).
    """

    phase: Phase = Phase.STARTING
    pid: int = 0
    create_time: float = 0.0
    uptime_at_start: float = 0.0
    host: str = ""
    step: int = 0
    max_steps: int | None = None
    epochs: int | None = None
    last_step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    measured: dict[str, int] = field(default_factory=dict)
    steps_per_sec: float | None = None
    last_checkpoint: LastCheckpoint | None = None
    memory_tier: MemoryTierState = field(default_factory=MemoryTierState)
    save_model_secs: float | None = None
    saving: int | None = None
    memory_bytes: int = 0
    devices: list[DeviceState] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    exit_code: int | None = None
    ended: str | None = None
    failure: Failure | None = None
    run_id: str = ""
    logdir: str = ""
    job: str = ""
    name: str = ""
    tags: list[str] = field(default_factory=list)
    notes: str = ""
    params: dict[str, Param] = field(default_factory=dict)
    evaluations: EvaluationSummary | None = None
    answers: list[Answer] = field(default_factory=list)
    goodput: Goodput = field(default_factory=Goodput)
    workers: list[WorkerState] = field(default_factory=list)
    at: float = 0.0

    @property
    def answer(self) -> Answer | None:
        """The reply to the last request that had an id; None if there is none."""
        return self.answers[-1] if self.answers else None

    def answer_to(self, request: str) -> Answer | None:
        """Return the reply to the request with this id; None if it is not there."""
        return next((each for each in reversed(self.answers) if request in each.ids), None)

    @property
    def eta_secs(self) -> float | None:
        """Seconds until training ends at the present rate; None if that is unknown."""
        if self.end is None or not self.steps_per_sec or self.phase.is_over:
            return None
        secs = (self.end - self.step) / self.steps_per_sec
        return secs if secs < _LONGEST_ETA_SECS else None

    @property
    def end(self) -> int | None:
        """The step at which training ends, if it is still ahead."""
        ends = [each for each in (self.max_steps, self.last_step) if each is not None and self.step <= each]
        return min(ends, default=None)

    def shown_metrics(self) -> dict[str, str]:
        """Return the metrics as a person reads them: an epoch is one of so many, an older value has its step."""
        shown = {name: figure(value) + self._of_step(name) for name, value in self.metrics.items()}
        if self.epochs is not None and EPOCH in shown:
            shown[EPOCH] += f" of {self.epochs:,}"
        return shown

    def shown_params(self) -> str:
        """Return the parameters as a person types them."""
        return " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.params.items())

    def _of_step(self, name: str) -> str:
        """Return the step of a metric, in words, if it is of an earlier one than the present."""
        step = self.measured.get(name, self.step)
        return f" at step {step:,}" if step != self.step else ""

    def at_checkpoint(
        self, last: LastCheckpoint, metrics: dict[str, float], measured: Mapping[str, int], phase: Phase
    ) -> State:
        """Return the state of a run that will resume from this checkpoint, while no process trains."""
        goodput = replace(self.goodput, known_until=0)  # what is trained again from here on was not lost in a crash
        changed = replace(self, phase=phase, step=last.step, metrics=dict(metrics), measured=dict(measured))
        return replace(changed, last_checkpoint=last, error=None, goodput=goodput)

    def line(self) -> str:
        """Return the state in one line, for a log and for `systemctl status`."""
        parts = [f"step {self.step}" + (f" of {self.end}" if self.end else "")]
        parts += [f"{name} {value:.4g}{self._of_step(name)}" for name, value in self.metrics.items()]
        if self.steps_per_sec and not self.phase.is_over:
            parts.append(f"{self.steps_per_sec:.4g} steps/s")
        return ", ".join(parts)

    @property
    def memory_step(self) -> int | None:
        """The step in memory, if it is newer than the last checkpoint, and this user can see its folder."""
        tier, last = self.memory_tier, self.last_checkpoint
        is_newer = tier.step is not None and (last is None or tier.step > last.step)
        return tier.step if is_newer and os.path.lexists(tier.path) else None

    @property
    def resume_step(self) -> int | None:
        """The step from which a start resumes if the process is gone and could not save; None if there is none."""
        if (step := self.memory_step) is not None:
            return step
        return self.last_checkpoint.step if self.last_checkpoint is not None else None

    @property
    def is_of_this_machine(self) -> bool:
        """True if its process is, or was, one of this machine's; so are those of states that do not say."""
        return self.host in ("", socket.gethostname())

    def is_elsewhere(self, now: float) -> bool:
        """Return whether another machine, or a container, trains the run: its processes cannot be seen from here.

        It counts as running for as long as it writes its state; `now` is in seconds since 1970 (UTC).
        """
        return not self.is_of_this_machine and not self.phase.is_over and abs(now - self.at) < _SILENT_SECS

    def is_left(self, is_running: bool) -> bool:
        """Return whether the process is gone and could not say so."""
        return not is_running and not self.phase.is_over

    @property
    def left_as(self) -> str:
        """The way in which a process ended that could not say so, in words."""
        if self.phase is Phase.FINISHING:
            return "it ended outside of its training"
        return f"it ended while {self.phase}, without a save"

    def phase_now(self, is_running: bool) -> str:
        """Return the phase for a person: that of a process which is gone and could not say so is "killed"."""
        return KILLED if self.is_left(is_running) else str(self.phase)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON's types. JSON has no NaN and no infinity: they become null."""
        data = asdict(self)
        data["metrics"] = {k: v if math.isfinite(v) else None for k, v in self.metrics.items()}
        data["answer"] = data["answers"][-1] if self.answers else None
        return data

    def write(self, path: Path) -> None:
        """Replace the file at `path`.

        Raises:
          StorageError: it cannot be written.
        """
        text = json.dumps(self.to_json(), indent=1, allow_nan=False)
        with storage(f"write {path}"):
            write_atomic(path, text.encode() + b"\n", durable=False)


def is_running(state: State | None, *, is_here: bool, now: float) -> bool:
    """Return whether a process trains a run.

    Args:
      state: what the run says of itself; None if it says nothing.
      is_here: whether its process is one of this machine's.
      now: seconds since 1970 (UTC).
    """
    return is_here or (state is not None and state.is_elsewhere(now))


def read_state(path: Path) -> State | None:
    """Read a state file. Returns None for a missing or damaged one.

    Raises:
      StorageError: it is there and cannot be read.
    """
    try:
        with storage(f"read {path}", missing_ok=True):
            content = read_regular(path)
            return _from_json(json.loads(content, parse_int=_integer, parse_float=_finite, parse_constant=_finite))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return None


def _integer(text: str) -> int:
    """Return an integer that every reader can count with: JSON has them of any size."""
    if abs(value := int(text)) > LARGEST:
        raise ValueError(f"{text} is out of range")
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return value


def _from_json(data: dict[str, Any]) -> State:
    metrics = {name: math.nan if value is None else value for name, value in data["metrics"].items()}
    if "answers" not in data and data.get("answer"):  # as 0.2.0 wrote it
        data["answers"] = [data["answer"]]
    return msgspec.convert({**data, "phase": data["phase"], "metrics": metrics}, State)
