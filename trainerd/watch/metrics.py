"""What Prometheus scrapes: the figures of all runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.registry import Collector, CollectorRegistry

from trainerd.rundir.goodput import Spent
from trainerd.rundir.run_events import Kind
from trainerd.rundir.state import Phase, State
from trainerd.text import printable
from trainerd.version import __version__
from trainerd.watch.run_reader import Seen

MOST_METRICS = 100  # of one run: each is a series, and Prometheus keeps every series that it has ever seen
_LONGEST = 200  # characters of a label
_KILLED = "killed"  # a phase beside those of state.json: the process ended without saying so

# name: its help, and what it is of a state. None: there is none now.
_OF_STATE: dict[str, tuple[str, Callable[[State], float | None]]] = {
    "step": ("The global step.", lambda state: state.step),
    "max_steps": ("The step at which training ends.", lambda state: state.max_steps),
    "memory_bytes": ("The resident memory of the process that trains.", lambda state: state.memory_bytes),
    "warnings": ("How many warnings the run has now.", lambda state: len(state.warnings)),
    "state_timestamp_seconds": ("When the run last wrote its state, since 1970 (UTC).", lambda state: state.at),
    "steps_again": ("Steps that were trained again after crashes.", lambda state: state.goodput.steps_again),
}
_OF_SAVE: dict[str, tuple[str, Callable[[State], float | None]]] = {
    "checkpoint_step": ("The step of the newest checkpoint.", lambda state: _last(state, "step")),
    "checkpoint_timestamp_seconds": (
        "When it was durable on disk, since 1970 (UTC).",
        lambda state: _last(state, "at"),
    ),
    "checkpoint_size_bytes": ("The size of its files.", lambda state: _last(state, "bytes")),
    "checkpoint_save_seconds": ("How long it took, until it was durable.", lambda state: _last(state, "seconds")),
}


def _last(state: State, name: str) -> float | None:
    return None if state.last_checkpoint is None else getattr(state.last_checkpoint, name)


def registry(runs: Callable[[], Sequence[Seen]], clock: Callable[[], float] = time.time) -> CollectorRegistry:
    """A registry of its own with the metrics of all runs.

    Args:
      runs: looks at them.
      clock: seconds since 1970 (UTC).
    """
    found = CollectorRegistry(auto_describe=False)
    found.register(_Runs(runs, clock))
    return found


class _Runs(Collector):
    """Collects the metrics at each scrape."""

    def __init__(self, runs: Callable[[], Sequence[Seen]], clock: Callable[[], float]) -> None:
        self._runs, self._clock = runs, clock

    def collect(self) -> Iterator[Metric]:
        """All metrics, each with a sample for each run that has it."""
        began = time.perf_counter()
        runs = self._runs()
        labelled = [(_label(run.name), run) for run in runs]
        states = [(name, run, run.state) for name, run in labelled if run.state is not None]
        yield InfoMetricFamily("trainerd", "The watcher.", value={"version": __version__})
        yield _gauge("runs", "How many runs are known.", [([], len(runs))], [])
        yield _gauge(
            "running", "Whether a process trains the run: 1 or 0.", [([n], run.is_running) for n, run in labelled]
        )
        unread = [([name], bool(run.told)) for name, run in labelled]
        yield _gauge("unreadable", "Whether something of the run cannot be read: 1 or 0.", unread)
        yield _phases(states)
        for name, (told, get) in {**_OF_STATE, **_OF_SAVE}.items():
            yield _gauge(name, told, [([run], get(state)) for run, _, state in states])
        yield from self._moving(states)
        yield _metrics(states)
        yield _goodput(states)
        yield _events(labelled)
        yield from _disks(labelled)
        yield _gauge("collect_seconds", "How long the watcher took to look.", [([], time.perf_counter() - began)], [])

    def _moving(self, states: Sequence[tuple[str, Seen, State]]) -> Iterator[Metric]:
        """What holds only while a process trains, or depends on the time."""
        now = self._clock()
        rates = [([name], state.steps_per_sec) for name, run, state in states if run.is_running]
        yield _gauge("steps_per_second", "The rate over the last seconds of training.", rates)
        ages = [([n], max(0.0, now - at)) for n, _, state in states if (at := _last(state, "at")) is not None]
        yield _gauge("checkpoint_age_seconds", "How long ago the newest checkpoint was durable on disk.", ages)


def _label(text: str) -> str:
    """A text that may come from anybody, as the value of a label."""
    return " ".join(printable(text[:_LONGEST]).split())


def _gauge(
    name: str, told: str, samples: Sequence[tuple[list[str], float | None]], labels: Sequence[str] = ("run",)
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"trainerd_{name}", told, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, _number(value))
    return family


def _number(value: float) -> float:
    """A number of a file that anybody may have written: JSON has integers of any size."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _phases(states: Sequence[tuple[str, Seen, State]]) -> StateSetMetricFamily:
    family = StateSetMetricFamily(
        "trainerd_phase", "What the run does: 1 for that phase, 0 for all others.", labels=["run"]
    )
    for name, run, state in states:
        phase = str(state.phase) if run.is_running or state.phase.is_over else _KILLED
        family.add_metric([name], {each: each == phase for each in (*map(str, Phase), _KILLED)})
    return family


def _metrics(states: Sequence[tuple[str, Seen, State]]) -> GaugeMetricFamily:
    """The loss and the others, by their names."""
    samples = [
        ([name, _label(metric)], value)
        for name, _, state in states
        for metric, value in list(state.metrics.items())[:MOST_METRICS]
    ]
    return _gauge("metric", "The last value of a metric of the job, such as the loss.", samples, ["run", "metric"])


def _goodput(states: Sequence[tuple[str, Seen, State]]) -> CounterMetricFamily:
    family = CounterMetricFamily(
        "trainerd_spent_seconds", "What the time of the run went to, from its first start on.", labels=["run", "kind"]
    )
    for name, _, state in states:
        for kind in Spent:
            family.add_metric([name, kind], _number(state.goodput.seconds.get(kind, 0.0)))
    return family


def _events(runs: Sequence[tuple[str, Seen]]) -> CounterMetricFamily:
    family = CounterMetricFamily("trainerd_events", "What happened to the run, by kind.", labels=["run", "kind"])
    for name, run in runs:
        for kind in Kind:
            family.add_metric([name, kind], run.event_counts.get(kind, 0))
    return family


def _disks(runs: Sequence[tuple[str, Seen]]) -> Iterator[GaugeMetricFamily]:
    """The disks of the run directories. statvfs hangs where a disk of the network does, as everything there."""
    free, size = [], []
    for name, run in runs:
        try:
            found = os.statvfs(run.rundir.path)
        except OSError:
            continue
        free.append(([name], float(found.f_bavail * found.f_frsize)))
        size.append(([name], float(found.f_blocks * found.f_frsize)))
    yield _gauge("disk_free_bytes", "What is free on the disk of the run directory.", free)
    yield _gauge("disk_size_bytes", "The size of that disk.", size)
