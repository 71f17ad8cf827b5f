"""A TensorFlow 1 graph under the daemon's loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import scalars
from trainerd.config import parse as configs
from trainerd.errors import DataError, EntryError, JobError
from trainerd.loop.contract import Steps
from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import Outcome
from trainerd.proof.check import measured
from trainerd.run.driven import Loop
from trainerd.run.run import Run
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Phase, State
from trainerd.sessions.tf1.job_session import GraphJobSession

tf1 = tf.compat.v1
Dataset = tf.data.Dataset


def graph_job(**options: Any) -> trainerd.GraphJob:
    """A regression on a shuffled dataset: an input, optimizer slots, a summary."""
    graph = tf1.Graph()
    with graph.as_default():
        dataset = tf.data.Dataset.range(1000).shuffle(100, seed=1)
        dataset = dataset.repeat() if options.pop("repeats", True) else dataset.take(30)
        batch = tf1.data.make_one_shot_iterator(dataset).get_next()
        w = tf1.get_variable("w", initializer=options.pop("initial", 0.0))
        loss = tf.square(w - tf.cast(batch, tf.float32) / 1000)
        tf1.summary.scalar("weight", w)
        step = tf1.train.get_or_create_global_step() if options.pop("counts", True) else None
        train_op = tf1.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
    return trainerd.GraphJob(graph, train_op, metrics={"loss": loss, "batch": batch}, **options)


class Life:
    """One process's life of a run, without the process."""

    def __init__(self, logdir: Path, job: trainerd.GraphJob, **keys: Any) -> None:
        config = configs.parse({"entry": "a:b", "logdir": str(logdir), **keys})
        self.session = GraphJobSession(job, stop_on_nan=config.stop_on_nan)
        self.flag, self.reporter = Flag(), Reporter(State(), [])
        self.rows: list[list[float]] = []
        self.run_session_until, self.session.run_until = self.session.run_until, self.recorded  # type: ignore[method-assign]
        rundir = RunDirectory(logdir)
        rundir.create()
        self.run = Run(
            config,
            self.session,
            rundir,
            flag=self.flag,
            reporter=self.reporter,
            events=self.session.events(logdir),
        )

    def recorded(self, limit: int) -> Steps:
        steps = self.run_session_until(limit)
        self.rows += steps.rows.tolist()
        return steps

    def train(self) -> Outcome:
        self.run.restore()
        return Loop(self.run, self.session, flag=self.flag, reporter=self.reporter).train()


def final(logdir: Path) -> dict[str, Any]:
    """Every variable of the newest checkpoint."""
    reader = tf.train.load_checkpoint(str(logdir))
    names = [name for name in reader.get_variable_to_shape_map() if not name.startswith("trainerd/")]
    return {name: reader.get_tensor(name) for name in names}


def test_a_run_in_parts_is_the_run_that_never_stopped(tmp_path: Path) -> None:
    whole = Life(tmp_path / "whole", graph_job(), max_steps=300)
    assert whole.train().phase is Phase.FINISHED
    rows: list[list[float]] = []
    for end in (1, 100, 175, 300):
        part = Life(tmp_path / "parts", graph_job(), max_steps=end)
        part.train()
        rows += part.rows
    assert rows == whole.rows and len(rows) == 300
    expected, found = final(tmp_path / "whole"), final(tmp_path / "parts")
    assert expected.keys() == found.keys() and all(np.array_equal(expected[k], found[k]) for k in expected)


def queued(*, ends: bool, bad: bool = False) -> trainerd.GraphJob:
    """A graph that reads a queue, as programs of TensorFlow 1 do, with a summary of what it reads."""
    graph = tf1.Graph()
    with graph.as_default():
        numbers = tf1.train.limit_epochs(tf.constant([1.0, 2.0, 3.0]), num_epochs=2 if ends else None)
        if bad:
            numbers = tf1.debugging.check_numerics(tf.math.log(numbers - 2.0), "a bad example")
        x = tf1.train.batch([numbers], 1, enqueue_many=True)[0]
        tf1.summary.scalar("x", x)
        w = tf1.get_variable("w", initializer=0.0)
        step = tf1.train.get_or_create_global_step()
        train_op = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.square(w - x), global_step=step)
    return trainerd.GraphJob(graph, train_op, metrics={"x": x})


def test_queue_runners_feed_it(tmp_path: Path) -> None:
    life = Life(tmp_path / "ends", queued(ends=True))
    outcome = life.train()
    assert outcome.phase is Phase.FINISHED and life.session.step == 6
    assert sorted(row[0] for row in life.rows) == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    endless = Life(tmp_path / "endless", queued(ends=False), max_steps=50, summary={"save_summaries_secs": 0.001})
    endless.train()
    assert endless.session.step == 50


def test_a_queue_runner_that_fails_fails_the_run(tmp_path: Path) -> None:
    life = Life(tmp_path, queued(ends=False, bad=True))
    with pytest.raises(JobError, match="what fills a queue of the job failed") as caught:
        life.train()
    assert "a bad example" in str(caught.value.details)


def test_it_is_paused_by_the_flag_and_saved_at_that_step(tmp_path: Path) -> None:
    life = Life(tmp_path, graph_job(), checkpoint={"save_model_steps": 7})
    inner = life.run_session_until

    def pausing(limit: int) -> Steps:
        if life.session.step >= 49:
            life.flag.raise_for(Request.PAUSE)
        return inner(limit)

    life.run_session_until = pausing
    assert life.train().phase is Phase.PAUSED
    assert final(tmp_path)["global_step"] == 49


def test_summaries_metrics_and_the_evaluation_are_written(tmp_path: Path) -> None:
    job = graph_job(evaluate=lambda session: {"w": session.run("w/Read/ReadVariableOp:0")})
    life = Life(tmp_path, job, max_steps=50, summary={"metrics_steps": 10}, evaluate={"evaluate_steps": 25})
    life.train()
    assert [step for step, _ in scalars(tmp_path, "loss")][:5] == [10, 20, 30, 40, 50]
    assert {step for step, _ in scalars(tmp_path, "val_w")} == {25, 50}
    assert scalars(tmp_path, "weight")[-1][0] == 50
    assert life.reporter.state.metrics["val_w"] == pytest.approx(float(final(tmp_path)["w"]))


def test_the_end_of_the_input_ends_it(tmp_path: Path) -> None:
    outcome = Life(tmp_path, graph_job(repeats=False)).train()
    assert outcome.phase is Phase.FINISHED and outcome.by_job
    assert final(tmp_path)["global_step"] == 30


def test_a_loss_that_is_nan_ends_it_unsaved(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="the loss became nan in step 1"):
        Life(tmp_path, graph_job(initial=float("nan"))).train()
    assert RunDirectory(tmp_path).steps() == []


def test_a_step_that_fails_says_where(tmp_path: Path) -> None:
    graph = tf1.Graph()
    with graph.as_default():
        step = tf1.train.get_or_create_global_step()
        with tf.control_dependencies([tf1.assign_add(step, 1)]):
            bad = tf.debugging.Assert(tf.less(step.read_value(), 5), ["too far"])
    with pytest.raises(JobError, match="the job failed in step") as raised:
        Life(tmp_path, trainerd.GraphJob(graph, bad)).train()
    assert "too far" in raised.value.details


def test_a_checkpoint_of_another_graph_is_refused(tmp_path: Path) -> None:
    Life(tmp_path, graph_job(), max_steps=5).train()
    graph = tf1.Graph()
    with graph.as_default():
        other = tf1.get_variable("other", initializer=0.0)
        train_op = tf1.train.GradientDescentOptimizer(0.1).minimize(
            tf.square(other), global_step=tf1.train.get_or_create_global_step()
        )
    with pytest.raises(DataError, match="does not fit the job"):
        Life(tmp_path, trainerd.GraphJob(graph, train_op), max_steps=10).train()


@pytest.fixture
def uncounted() -> Iterator[Callable[[], trainerd.GraphJob]]:
    def build() -> trainerd.GraphJob:
        graph = tf1.Graph()
        with graph.as_default():
            v = tf1.get_variable("v", initializer=0.0)
            tf1.train.get_or_create_global_step()
            return trainerd.GraphJob(graph, tf1.assign_add(v, 1.0))

    yield build


def test_a_train_op_that_does_not_count_is_found_at_the_first_step(
    tmp_path: Path, uncounted: Callable[[], trainerd.GraphJob]
) -> None:
    with pytest.raises(JobError, match="Pass the global step to the optimizer"):
        Life(tmp_path, uncounted()).train()


def test_a_graph_that_cannot_be_trained_is_refused() -> None:
    with pytest.raises(EntryError, match="a global step that its train_op counts"):
        GraphJobSession(graph_job(counts=False))
    finalized = graph_job()
    finalized.graph.finalize()
    with pytest.raises(EntryError, match="finalized"):
        GraphJobSession(finalized)


def test_a_variable_that_no_restore_initializes_is_refused() -> None:
    def leaves_out(initialize: bool) -> trainerd.GraphJob:
        job = graph_job()
        with job.graph.as_default():
            left = tf1.get_variable("left", initializer=1.0)
            if initialize:
                tf1.add_to_collection(tf1.GraphKeys.LOCAL_INIT_OP, left.initializer)
            return replace(job, saver=tf1.train.Saver([each for each in tf1.global_variables() if each is not left]))

    with pytest.raises(EntryError, match=r"leaves out left, .* could not resume"):
        GraphJobSession(leaves_out(initialize=False))
    GraphJobSession(leaves_out(initialize=True))


def test_random_ops_that_initialize_variables_are_not(caplog: pytest.LogCaptureFixture) -> None:
    """A resume restores what they have given."""
    with tf.Graph().as_default() as graph:
        step = tf1.train.get_or_create_global_step()
        weight = tf1.get_variable("weight", [3, 2])
        train_op = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(weight**2), global_step=step)
        tf1.global_variables_initializer()
    GraphJobSession(trainerd.GraphJob(graph, train_op))
    assert "RandomUniform" not in caplog.text


def test_random_ops_that_lose_their_place_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    def dropping() -> trainerd.GraphJob:
        graph = tf1.Graph()
        with graph.as_default():
            v = tf1.get_variable("v", initializer=0.0)
            step = tf1.train.get_or_create_global_step()
            with tf.control_dependencies([tf1.assign_add(step, 1)]):
                return trainerd.GraphJob(graph, tf1.assign_add(v, tf1.random.normal([])))

    GraphJobSession(dropping())
    assert "RandomStandardNormal" in caplog.text
    with pytest.raises(EntryError, match="deterministic = true"):
        GraphJobSession(dropping(), repeats=True)


INPUTS: dict[str, Callable[[], tf.data.Dataset]] = {
    "may have another order: IteratorV2 in .* has batch\\(": lambda: Dataset.range(9).shuffle(9, 2).batch(4).repeat(),
    "is not saved, .*: IteratorV2 in .*: (Eager)?PyFunc is stateful": lambda: Dataset.from_generator(
        lambda: iter([1]), tf.int64
    ),
    "is not saved, .*: IteratorV2 in .*: DummySeedGenerator": lambda: Dataset.range(9).flat_map(
        lambda x: Dataset.range(x).shuffle(9, 2)
    ),
}


@pytest.mark.parametrize(("reported", "dataset"), INPUTS.items())
def test_an_input_that_does_not_resume_exactly_is_reported(
    caplog: pytest.LogCaptureFixture, reported: str, dataset: Callable[[], tf.data.Dataset]
) -> None:
    def reading() -> trainerd.GraphJob:
        with tf.Graph().as_default() as graph:
            iterator = tf1.data.make_initializable_iterator(dataset())
            tf1.add_to_collection(tf1.GraphKeys.LOCAL_INIT_OP, iterator.initializer)
            v = tf1.get_variable("v", initializer=tf.zeros([], tf.int64))
            with tf.control_dependencies([tf1.assign_add(tf1.train.get_or_create_global_step(), 1)]):
                return trainerd.GraphJob(graph, tf1.assign_add(v, tf.reduce_sum(iterator.get_next())))

    assert GraphJobSession(reading()).step == 0
    assert re.search(reported, caplog.text)
    with pytest.raises(EntryError, match=f"^deterministic = true, and .*{reported}"):
        assert GraphJobSession(reading(), repeats=True).step == 0


def test_an_input_that_only_the_evaluation_reads_is_none_of_them(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    job = graph_job()
    with job.graph.as_default():
        held_out = [tf1.data.make_initializable_iterator(dataset()) for dataset in INPUTS.values()]
        elements = [each.get_next() for each in held_out]

    def evaluate(session: Any) -> dict[str, float]:
        session.run([each.initializer for each in held_out[:2]])
        return {"sum": float(np.sum(session.run(elements[0])))}

    session = GraphJobSession(replace(job, evaluate=evaluate), repeats=True)
    assert session.step == 0 and "another order" not in caplog.text and "not saved" not in caplog.text
    session.run_until(2)
    session.evaluate()
    session.snapshot().write(tmp_path / "model.ckpt-2", lambda size: None)
    assert caplog.text.count("the position of an input is not saved") == 1  # a warning, and no error in the run


@pytest.mark.parametrize("changes", [False, True])
def test_an_evaluation_that_changes_the_graphs_variables_is_reported(
    caplog: pytest.LogCaptureFixture, changes: bool
) -> None:
    job = graph_job()
    loss = job.metrics["loss"]
    fetches = [loss, job.train_op] if changes else [loss]
    looking = replace(job, evaluate=lambda session: {"loss": session.run(fetches)[0]})
    list(measured(GraphJobSession(looking), refuse=False))
    assert ("the evaluation changed the state: the variable 'beta1_power'" in caplog.text) == changes
