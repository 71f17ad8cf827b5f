"""Steps per second under `trainerd run` beside its peers: tiny, keras, digits, graphs, fifty_ms."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, compared
from benchmarks.plan import Plan
from benchmarks.sides import Peer, Setting, Side, Trainer, interleaved
from benchmarks.stalls import device_checkpoints

AnySide = TypeVar("AnySide", bound=Side)

UNIT = "steps/s"
MICROSECONDS = "µs"
OURS = "trainerd run"  # in the chart of what a step costs
# jobs.py spells it too; importing that would import TensorFlow.
INVERSIONS = "TRAINERD_BENCH_INVERSIONS"


def tiny(plan: Plan) -> list[Figure]:
    """The smallest step there is: all that is measured is what stands between two steps."""
    entry = "benchmarks.jobs:tiny"
    with folder_of() as folder:
        ours, bare, monitored, supervisor = rates_of(
            plan,
            lambda: Trainer(entry, folder, by_loss=True),
            lambda: Peer("bare", entry),
            lambda: Peer("monitored"),
            lambda: Peer("supervisor"),
        )
    return [
        compared("tiny", "tiny step / bare loop", UNIT, ours, bare, Bar(AT_LEAST, 10)),
        compared("tiny", "tiny step / MonitoredTrainingSession", UNIT, ours, monitored, Bar(AT_LEAST, 20)),
        compared("tiny", "tiny step / TF1 Supervisor", UNIT, ours, supervisor, Bar(AT_LEAST, 10)),
    ]


def cost(plan: Plan) -> list[Figure]:
    """The time of a step of a model of one parameter, in all that trains it: nearly all of it is overhead."""
    entry = "benchmarks.jobs:tiny"
    peers = {
        "trainerd.keras.fit": ("keras_fit", "tiny", "1,trainerd"),
        "tf.function in a Python loop": ("bare", entry),
        "TF1 Supervisor": ("supervisor",),
        "TF1 MonitoredTrainingSession": ("monitored",),
        "Keras fit": ("keras_fit", "tiny", "1"),
        "Keras fit with BackupAndRestore": ("keras_fit", "tiny", "1,backup"),
    }
    with folder_of() as folder:
        rates = rates_of(
            plan,
            lambda: Trainer(entry, folder, by_loss=True),
            *(functools.partial(Peer, *arguments) for arguments in peers.values()),
        )
    ours, *others = ([1e6 / rate for rate in side] for side in rates)
    return [
        compared("cost", f"{OURS} / {name}", MICROSECONDS, ours, other)
        for name, other in zip(peers, others, strict=True)
    ]


def keras(plan: Plan) -> list[Figure]:
    """The smallest Keras model, with a dataset."""
    with folder_of() as folder, folder_of() as another:
        ours, job, fit, by_hundred = rates_of(
            plan,
            lambda: Trainer("benchmarks.jobs:tiny_keras", folder),
            lambda: Trainer("benchmarks.jobs:tiny_keras_job", another),
            lambda: Peer("keras_fit", "tiny", "1"),
            lambda: Peer("keras_fit", "tiny", "100"),
        )
    note = "shown, not claimed"
    return [
        compared("keras", "tiny Keras model / fit", UNIT, ours, fit, Bar(AT_LEAST, 20)),
        compared("keras", "tiny Keras model / fit, steps_per_execution=100", UNIT, ours, by_hundred, note=note),
        compared("keras", "tiny KerasJob / fit", UNIT, job, fit, Bar(AT_LEAST, 10)),
        compared("keras", "tiny KerasJob / fit, steps_per_execution=100", UNIT, job, by_hundred, note=note),
    ]


def digits_keras(plan: Plan) -> list[Figure]:
    """The model of digits, compiled: as a KerasJob, and under `fit`."""
    with folder_of() as folder:
        ours, fit, by_fifty = rates_of(
            plan,
            lambda: Trainer("benchmarks.jobs:digits_keras_job", folder),
            lambda: Peer("keras_fit", "digits", "1"),
            lambda: Peer("keras_fit", "digits", "50"),
        )
    return [
        compared("digits_keras", "digits KerasJob / fit", UNIT, ours, fit, Bar(AT_LEAST, 1.3)),
        compared(
            "digits_keras", "digits KerasJob / fit, steps_per_execution=50", UNIT, ours, by_fifty, Bar(AT_LEAST, 1.0)
        ),
    ]


def fit(plan: Plan) -> list[Figure]:
    """`trainerd.keras.fit` beside `model.fit`: alone, with the bar, and with a callback of each batch."""
    return [figure for name in plan.fitted for figure in _fit(plan, name)]


def _fit(plan: Plan, name: str) -> list[Figure]:
    least, beside_many = {"tiny": (10.0, None), "digits": (1.5, Bar(AT_LEAST, 1.0))}[name]
    settings = ("1,trainerd", "1,trainerd,bar", "1,trainerd,batches", "1", "50", "1,batches")
    peer = Peer("keras_fit", name, *settings)
    changes = (functools.partial(peer.change, index) for index in range(len(settings)))
    ours, bar, batches, fit, by_fifty, fit_batches = rates_of_settings(plan, peer, *changes)
    what, equal = f"{name}, trainerd.keras.fit", Bar(AT_LEAST, 1.0)
    return [
        compared("fit", f"{what} / fit", UNIT, ours, fit, Bar(AT_LEAST, least)),
        compared("fit", f"{what} / fit, steps_per_execution=50", UNIT, ours, by_fifty, beside_many),
        compared("fit", f"{what} with its bar / fit without", UNIT, bar, fit, Bar(AT_LEAST, least)),
        compared("fit", f"{what} / fit, both with on_train_batch_end", UNIT, batches, fit_batches, equal),
    ]


def two_devices(plan: Plan) -> list[Figure]:
    """Two logical devices: a step beside the same strategy in a bare loop, and a tiny Keras model beside `fit`."""
    module, devices = "benchmarks.two_devices", "devices = 2\n"
    with folder_of() as folder, folder_of() as another:
        ours, bare, keras_job, fit = rates_of(
            plan,
            lambda: Trainer(f"{module}:job", folder, more=devices),
            lambda: Peer("two_devices", "bare"),
            lambda: Trainer(f"{module}:keras_job", another, more=devices),
            lambda: Peer("two_devices", "fit"),
        )
    step, tiny = ([1e6 / rate for rate in side] for side in (ours, keras_job))
    return [
        compared(
            "two_devices",
            "two devices, step / bare loop in the graph",
            MICROSECONDS,
            step,
            [1e6 / rate for rate in bare],
            Bar(AT_MOST, 1.03),
        ),
        compared(
            "two_devices",
            "two devices, tiny KerasJob / fit",
            MICROSECONDS,
            tiny,
            [1e6 / rate for rate in fit],
            Bar(AT_MOST, 0.5),
        ),
        device_checkpoints(plan.checkpoints),
    ]


def digits(plan: Plan) -> list[Figure]:
    """The job that ships: a small CNN on a dataset, batches of 32."""
    entry = "trainerd.examples.digits:job"
    with folder_of() as folder:
        ours, bare = rates_of(plan, lambda: Trainer(entry, folder), lambda: Peer("bare", entry))
    return [compared("digits", "digits step / bare loop", UNIT, ours, bare, Bar(AT_LEAST, 1.15))]


def graph(plan: Plan) -> list[Figure]:
    """The seed's TensorFlow 1 graph, in a loop of the program's own: the time of one step."""
    kinds = ("our_supervisor", "our_monitored", "session", "supervisor", "monitored")
    rates = rates_of(plan, *(functools.partial(Peer, "graph", kind) for kind in kinds))
    supervisor, ours, session, theirs, monitored = ([1e6 / rate for rate in side] for side in rates)
    what = "graph step, Supervisor"
    return [
        compared("graph", f"{what} / Session.run", MICROSECONDS, supervisor, session, Bar(AT_MOST, 0.6)),
        compared("graph", f"{what} / TF1 Supervisor", MICROSECONDS, supervisor, theirs, Bar(AT_MOST, 0.45)),
        compared(
            "graph", f"{what} / MonitoredTrainingSession", MICROSECONDS, supervisor, monitored, Bar(AT_MOST, 0.25)
        ),
        compared(
            "graph",
            "graph step, MonitoredTrainingSession / TensorFlow's",
            MICROSECONDS,
            ours,
            monitored,
            Bar(AT_MOST, 0.5),
        ),
    ]


def fifty_ms(plan: Plan) -> list[Figure]:
    """A step of 50 ms: nothing is won here, and nothing may be lost."""
    entry = "benchmarks.jobs:fifty_ms"
    with folder_of() as folder, contextlib.ExitStack() as stack:
        bare = _entered(stack, lambda: Peer("bare", entry))
        bare.ready()  # it measures how much work 50 ms are
        env = {INVERSIONS: str(bare.facts["inversions"])}
        trainer = _entered(stack, lambda: Trainer(entry, folder, env=env))
        trainer.ready()
        sides: list[Side] = [trainer, bare]
        ours, peer = interleaved(sides, rounds=plan.long_rounds, seconds=plan.long_seconds, say=plan.say)
    return [compared("fifty_ms", "50 ms step / bare loop", UNIT, ours, peer, Bar(AT_LEAST, 0.995))]


def rates_of(plan: Plan, *builders: Callable[[], Side], long: bool = False) -> list[list[float]]:
    """Start all sides, and measure them in turns.

    Args:
      plan: how long.
      builders: make the sides.
      long: whether the bar is close, so that more rounds are needed.
    """
    rounds, seconds = (plan.long_rounds, plan.long_seconds) if long else (plan.rounds, plan.seconds)
    with contextlib.ExitStack() as stack:
        sides = [_entered(stack, build) for build in builders]
        for side in sides:
            side.ready()
        return interleaved(sides, rounds=rounds, seconds=seconds, say=plan.say)


def rates_of_settings(plan: Plan, process: Side, *settings: Callable[[], object]) -> list[list[float]]:
    """Measure one process in several settings, in turns: two processes of one program differ by more than a close bar.

    Args:
      plan: how long.
      process: is ended by this.
      settings: each changes to a setting.
    """
    try:
        process.ready()
        sides: list[Side] = [Setting(process, each) for each in settings]
        return interleaved(sides, rounds=plan.long_rounds, seconds=plan.long_seconds, say=plan.say)
    finally:
        process.end()


def _entered(stack: contextlib.ExitStack, build: Callable[[], AnySide]) -> AnySide:
    side = build()
    stack.callback(side.end)
    return side


@contextlib.contextmanager
def folder_of() -> Iterator[Path]:
    """An empty folder, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="trainerd-bench-") as name:
        yield Path(name)
