"""The metrics of all runs, for Prometheus to scrape."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.registry import Collector, CollectorRegistry

from trainerd.rundir.goodput import Spent
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import KILLED, Phase, State
from trainerd.system.gpus import DeviceState
from trainerd.text import printable
from trainerd.version import __version__
from trainerd.watch.run_reader import RunView

MOST_METRICS = 100  # of one run: each is a series, and Prometheus keeps every series that it has ever seen
_LONGEST = 200  # characters of a label
_Stated = tuple[str, RunView, State]  # a run that has a state, with its label
_PHASES = (*map(str, Phase), KILLED)

# Name: help, and what it is of a state; None where there is none now.
_OF_STATE: dict[str, tuple[str, Callable[[State], float | None]]] = {
    "step": ("The global step.", lambda state: state.step),
    "max_steps": ("The step at which training ends.", lambda state: state.max_steps),
    "memory_bytes": ("The resident memory of the process that trains.", lambda state: state.memory_bytes),
    "warnings": ("How many warnings the run has now.", lambda state: len(state.warnings)),
    "steps_again": ("Steps that were trained again after crashes.", lambda state: state.goodput.steps_again),
    "state_timestamp_seconds": ("When the run last wrote its state, since 1970 (UTC).", lambda state: state.at),
    "checkpoint_step": ("The step of the newest checkpoint.", lambda state: _saved(state, "step")),
    "checkpoint_timestamp_seconds": (
        "When the newest checkpoint was durable on disk, since 1970 (UTC).",
        lambda state: _saved(state, "at"),
    ),
    "checkpoint_size_bytes": ("The size of its files.", lambda state: _saved(state, "bytes")),
    "checkpoint_save_seconds": (
        "How long it took to write the newest checkpoint, from the step until it was durable.",
        lambda state: _saved(state, "seconds"),
    ),
}

# The same for each device that trains.
_OF_DEVICE: dict[str, tuple[str, Callable[[DeviceState], float | None]]] = {
    "memory_bytes": ("The memory in use on the GPU, by all processes.", lambda device: device.memory_bytes),
    "memory_total_bytes": ("The memory of the GPU.", lambda device: device.memory_total_bytes),
    "utilization_ratio": ("The share of the time in which the GPU computes.", lambda device: device.utilization),
}


def registry(
    runs: Callable[[], Sequence[RunView]],
    stages: Callable[[], Mapping[str, int]],
    clock: Callable[[], float] = time.time,
) -> CollectorRegistry:
    """Return a registry of its own with the metrics of all runs.

    Args:
      runs: returns the runs.
      stages: returns how many entries of the queue are in each stage.
      clock: seconds since 1970 (UTC).
    """
    found = CollectorRegistry(auto_describe=False)
    found.register(_Runs(runs, stages, clock))
    return found


class _Runs(Collector):
    """Collects the metrics at each scrape."""

    def __init__(
        self,
        runs: Callable[[], Sequence[RunView]],
        stages: Callable[[], Mapping[str, int]],
        clock: Callable[[], float],
    ) -> None:
        self._runs, self._stages, self._clock = runs, stages, clock

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, each with a sample for each run that has it."""
        began = time.perf_counter()
        runs = {_label(run.name): run for run in self._runs()}  # a series that is there twice spoils a whole scrape
        ones = [(label, run, run.state) for label, run in runs.items() if run.state is not None]
        yield InfoMetricFamily("trainerd", "The watcher.", value={"version": __version__})
        yield GaugeMetricFamily("trainerd_runs", "How many runs are known.", value=len(runs))
        yield _gauge(
            "running", "1 if a process trains the run, else 0.", {n: run.is_running for n, run in runs.items()}
        )
        yield _gauge(
            "unreadable",
            "1 if something of the run cannot be read, else 0.",
            {n: bool(r.unread) for n, r in runs.items()},
        )
        yield _phases(ones)
        for name, (about, get) in _OF_STATE.items():
            yield _gauge(name, about, {label: get(state) for label, _, state in ones})
        yield from _copies(runs)
        yield from self._of_now(ones)
        yield _metrics(ones)
        yield from _devices(ones)
        yield _spent(ones)
        yield _events(runs)
        yield from _disks(runs)
        yield _queue(self._stages())
        took = time.perf_counter() - began
        yield GaugeMetricFamily("trainerd_collect_seconds", "How long the watcher took to read all runs.", value=took)

    def _of_now(self, ones: Sequence[_Stated]) -> Iterator[Metric]:
        """Yield the metrics that hold only while a process trains, and those that depend on the time."""
        rates = {label: state.steps_per_sec for label, run, state in ones if run.is_running}
        yield _gauge("steps_per_second", "The rate over the last seconds of training.", rates)
        now = self._clock()
        ages = {label: now - at for label, _, state in ones if (at := _saved(state, "at")) is not None}
        yield _gauge("checkpoint_age_seconds", "How long ago the newest checkpoint was durable on disk.", ages)


def _copies(runs: Mapping[str, RunView]) -> Iterator[GaugeMetricFamily]:
    copies = {label: run.copy for label, run in runs.items() if run.copy is not None}
    steps = {label: copy.step for label, copy in copies.items()}
    yield _gauge("copied_step", "The step of the newest checkpoint that is copied elsewhere.", steps)
    taken = {label: copy.copied.get(copy.step or 0) for label, copy in copies.items()}
    yield _gauge("copied_timestamp_seconds", "When its snapshot was taken, since 1970 (UTC).", taken)
    failing = {label: copy.error is not None for label, copy in copies.items()}
    yield _gauge("copy_failing", "1 if the last try to copy the run failed, else 0.", failing)


def _saved(state: State, name: str) -> float | None:
    return None if state.last_checkpoint is None else getattr(state.last_checkpoint, name)


def _label(text: str) -> str:
    """Return a text that may come from anybody, as the value of a label."""
    return " ".join(printable(text[:_LONGEST]).split())


def _gauge(name: str, about: str, samples: Mapping[str, float | None]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"trainerd_{name}", about, labels=["run"])
    for label, value in samples.items():
        if value is not None:
            family.add_metric([label], value)
    return family


def _phases(ones: Sequence[_Stated]) -> StateSetMetricFamily:
    family = StateSetMetricFamily("trainerd_phase", "1 for what the run does, 0 for all else.", labels=["run"])
    for label, run, state in ones:
        family.add_metric([label], {phase: phase == state.phase_now(run.is_running) for phase in _PHASES})
    return family


def _metrics(ones: Sequence[_Stated]) -> GaugeMetricFamily:
    about = "The last value of a metric of the job, such as the loss."
    family = GaugeMetricFamily("trainerd_metric", about, labels=["run", "metric"])
    for label, _, state in ones:
        found = {_label(name): value for name, value in list(state.metrics.items())[:MOST_METRICS]}
        for name, value in found.items():
            family.add_metric([label, name], value)
    return family


def _devices(ones: Sequence[_Stated]) -> Iterator[GaugeMetricFamily]:
    """Yield what is known of the devices, while a process trains on them."""
    for name, (about, get) in _OF_DEVICE.items():
        family = GaugeMetricFamily(f"trainerd_device_{name}", about, labels=["run", "device"])
        for label, run, state in ones:
            found = {_label(each.name): get(each) for each in state.devices[:MOST_METRICS] if run.is_running}
            for device, value in found.items():
                if value is not None:
                    family.add_metric([label, device], value)
        yield family


def _spent(ones: Sequence[_Stated]) -> CounterMetricFamily:
    about = "What the time of the run went to, from its first start on."
    family = CounterMetricFamily("trainerd_spent_seconds", about, labels=["run", "kind"])
    for label, _, state in ones:
        for kind in Spent:
            seconds = state.goodput.seconds.get(kind, 0.0)
            family.add_metric([label, kind], seconds if seconds > 0 else 0.0)
    return family


def _events(runs: Mapping[str, RunView]) -> CounterMetricFamily:
    family = CounterMetricFamily("trainerd_events", "What happened to the run, by kind.", labels=["run", "kind"])
    for label, run in runs.items():
        for kind in EventKind:
            family.add_metric([label, kind], run.event_counts.get(kind, 0))
    return family


def _queue(stages: Mapping[str, int]) -> GaugeMetricFamily:
    about = "How many entries of the queue are in a stage."
    family = GaugeMetricFamily("trainerd_queue_entries", about, labels=["stage"])
    for stage, count in stages.items():
        family.add_metric([stage], count)
    return family


def _disks(runs: Mapping[str, RunView]) -> Iterator[GaugeMetricFamily]:
    found = {}
    for label, run in runs.items():
        with contextlib.suppress(OSError):  # it may not be read, or is gone
            found[label] = os.statvfs(run.rundir.path)
    free = {label: disk.f_bavail * disk.f_frsize for label, disk in found.items()}
    yield _gauge("disk_free_bytes", "What is free on the disk of the run directory.", free)
    size = {label: disk.f_blocks * disk.f_frsize for label, disk in found.items()}
    yield _gauge("disk_size_bytes", "The size of that disk.", size)
