"""A program under TensorFlow's distribute coordinator: who saves, who writes summaries, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute import distribute_coordinator

import trainerd
from tests.tensorflow.graphs import counter, events, saved
from trainerd.monitored.worker_context import WorkerContext

tf1 = tf.compat.v1


class Extended:
    """What a strategy says of its worker."""

    def __init__(self, saves: bool, shows: bool, initializes: bool = True) -> None:
        self.should_checkpoint, self.should_save_summary = saves, shows
        self.experimental_should_init = initializes
        self.experimental_between_graph = False


class Strategy:
    def __init__(self, *answers: bool) -> None:
        self.extended = Extended(*answers)


class CollectiveAllReduceStrategy(Strategy):
    """The name tells that the workers save together."""


def train(folder: Path, strategy: Any, task: tuple[str, int] | None = None, **more: Any) -> None:
    """Train 30 steps of a graph, as this worker."""
    found = counter(summaries=True)
    with found.graph.as_default():
        tf1.add_to_collection(tf1.GraphKeys.GLOBAL_STEP, found.global_step)
        kind, number = task or (None, None)
        options = {"save_checkpoint_steps": 20, "save_summaries_steps": 10, "log_step_count_steps": 10} | more
        with (
            distribute_coordinator._WorkerContext(strategy, None, kind, number),
            trainerd.MonitoredTrainingSession(checkpoint_dir=str(folder), **options) as session,
        ):
            for _ in range(30):
                session.run(found.train_op)
    tf1.summary.FileWriterCache.clear()


def shown(folder: Path) -> bool:
    """Whether there are summaries."""
    return any(event.summary.value for event in events(folder)) if folder.exists() else False


def steps(folder: Path) -> list[int]:
    return [step for step, _ in saved(folder)] if folder.exists() else []


@pytest.mark.parametrize(("saves", "shows"), [(True, True), (True, False), (False, True), (False, False)])
def test_what_a_worker_is_not_for_it_does_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: bool, shows: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    train(folder, Strategy(saves, shows))
    assert steps(folder) == ([30, 20, 0] if saves else [])
    assert shown(folder) is shows
    assert {path.name for path in tmp_path.iterdir()} <= {"run"}


def test_workers_that_save_together_each_have_a_folder(tmp_path: Path) -> None:
    train(tmp_path, CollectiveAllReduceStrategy(False, False), ("worker", 1))
    assert steps(tmp_path) == [] and not shown(tmp_path)
    own = tmp_path / "tmp_worker_1"
    assert steps(own) == [30, 20, 0] and shown(own)


def test_such_a_worker_goes_on_from_what_the_chief_has_saved(tmp_path: Path) -> None:
    train(tmp_path, CollectiveAllReduceStrategy(True, True), ("worker", 0))
    train(tmp_path, CollectiveAllReduceStrategy(False, False), ("worker", 1))
    assert steps(tmp_path / "tmp_worker_1") == [60, 40, 30]


def test_workers_that_save_together_do_so_by_the_step(tmp_path: Path) -> None:
    """A clock would have one save while another trains."""
    train(tmp_path, CollectiveAllReduceStrategy(True, True), save_checkpoint_secs=0.001, save_checkpoint_steps=None)
    assert steps(tmp_path) == [30, 0]


@pytest.mark.parametrize("kind", [trainerd.MonitoredSession, trainerd.SingularMonitoredSession])
def test_a_session_that_is_not_told_how_it_is_made_heeds_it_too(kind: Any) -> None:
    """The coordinator's settings win over the program's."""
    settings = tf1.ConfigProto(intra_op_parallelism_threads=1)
    with (
        tf1.Graph().as_default(),
        distribute_coordinator._WorkerContext(Strategy(True, True), None, None, None, session_config=settings),
    ):
        one = tf1.constant(1)
        with kind() as session:
            assert session.run(one) == 1
        context = WorkerContext.current()
        assert context is not None
        merged = context.session_config(tf1.ConfigProto(intra_op_parallelism_threads=2, inter_op_parallelism_threads=2))
        assert (merged.intra_op_parallelism_threads, merged.inter_op_parallelism_threads) == (1, 2)
