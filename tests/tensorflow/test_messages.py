"""Messages of what needs TensorFlow, each provoked once: what is wrong, and what to do."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import trainerd
from tests.fake import FakeSession, FakeSnapshot
from tests.tensorflow.models import X, Y, a_line, shuffled
from trainerd import open_job
from trainerd.checkpoints import manifest
from trainerd.checkpoints.contents.object_graph import weights_alone
from trainerd.checkpoints.manifest import About, Manifest
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import parse
from trainerd.config.schema import Config
from trainerd.errors import DataError, EntryError, JobError, ReleaseError, StorageError
from trainerd.loop.contract import Exportable
from trainerd.loop.flag import Flag
from trainerd.release.export import Release, release
from trainerd.release.predict import predict
from trainerd.release.verify import references_of, verify
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.input.saveable import require_saveable
from trainerd.sessions.input.shuffled_indices import shuffled_indices
from trainerd.sessions.keras import job_checks
from trainerd.sessions.keras.callback_memory import give_back
from trainerd.sessions.keras.job_session import read_weights
from trainerd.sessions.tf1.events import GraphEvents
from trainerd.sessions.tf1.job_session import GraphJobSession
from trainerd.sessions.tf2.job_session import FunctionSession
from trainerd.sessions.tf2.model import CheckpointModel
from trainerd.sessions.tf2.replicas import Replicas
from trainerd.workers.place import Place
from trainerd.workers.training import worker_batches

tf1 = tf.compat.v1
Dataset = tf.data.Dataset
Trained = tuple[Config, RunDirectory, Manifest]


def eagerly() -> keras.Model:
    model = a_line()
    model.compile("sgd", "mse", run_eagerly=True)
    return model


def sampled() -> tf.data.Dataset:
    return Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(3)], seed=1)


def reading_a_variable() -> tf.data.Dataset:
    number = tf.Variable(1, dtype=tf.int64)
    return Dataset.range(3).map(lambda each: each + number)


def on_two_devices(whole: Any) -> None:
    replicas = Replicas.of([tf.distribute.MirroredStrategy(["CPU:0"])])
    assert replicas is not None
    replicas.count = 2
    replicas.replicated(lambda batch: {})(whole)


def mirrored() -> tf.distribute.MirroredStrategy:
    return tf.distribute.MirroredStrategy(["CPU:0"])


@pytest.mark.parametrize(
    ("provoke", "says"),
    [
        (lambda: shuffled_indices(0, seed=1), "shuffled_indices: size must be 1 or more, and is 0."),
        (lambda: shuffled_indices(9, seed=1, epochs=2**62), f"{2**62} epochs of 9 are too many; leave `epochs` out."),
        (lambda: shuffled_indices(9, seed=-1), "shuffled_indices: the seed must be 0 or more, and is -1."),
        (lambda: shuffled_indices(9, seed=1, first_epoch=-1), "first_epoch must be 0 or more, and is -1."),
        (lambda: require_saveable(iter(sampled()), "WHAT"), "the dataset samples from datasets that all end"),
        (
            lambda: require_saveable(iter(reading_a_variable()), "WHAT"),
            "a function of the dataset reads a variable, such as the seed of a Keras layer that augments",
        ),
        (
            lambda: FunctionSession(trainerd.Job(lambda: None, settable={"rate": tf.Variable([1.0])})),
            "settable: 'rate' must be a variable with one number",
        ),
        (
            lambda: Replicas.of([mirrored(), mirrored()]),
            "the job was made under several strategies of tf.distribute. Make all of it under one.",
        ),
        (
            lambda: Replicas.of([tf.distribute.OneDeviceStrategy("CPU:0")]),
            "under a OneDeviceStrategy. Of the strategies of tf.distribute, trainerd trains under a MirroredStrategy.",
        ),
        (lambda: on_two_devices(tf.constant(1.0)), "a part of the batch is a scalar. Each must be a dense tensor"),
        (
            lambda: job_checks.require_splits(trainerd.KerasJob(eagerly(), shuffled()), 2),
            "several devices train in the graph. Compile the model without run_eagerly=True.",
        ),
    ],
)
def test_an_entry_that_is_wrong(provoke: Callable[[], object], says: str) -> None:
    with pytest.raises(EntryError) as raised:
        provoke()
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("provoke", "says"),
    [
        (
            lambda: job_checks.checked(trainerd.KerasJob(eagerly(), shuffled())),
            "several workers train in the graph. Compile the model without run_eagerly=True.",
        ),
        (
            lambda: job_checks.data_of(trainerd.KerasJob(a_line(), (X, Y), batch_size=7)),
            "the last of 60 examples in batches of 7 is smaller. Take a batch_size that divides 60",
        ),
        (
            lambda: worker_batches.worker_batches(Dataset.range(9).batch(3)),
            "and the size of its batch is not known. Batch it with drop_remainder=True",
        ),
        (
            lambda: worker_batches.worker_batches(Dataset.range(9).batch(3, drop_remainder=True)),
            "a batch of 3 cannot be split among 2 workers. Take a multiple of 2.",
        ),
    ],
)
def test_what_several_workers_cannot_train(
    monkeypatch: pytest.MonkeyPatch, provoke: Callable[[], object], says: str
) -> None:
    for module in (job_checks, worker_batches):
        monkeypatch.setattr(module, "cluster", lambda: Place(0, 2))
    with pytest.raises(EntryError) as raised:
        provoke()
    assert says in str(raised.value)


def test_a_callback_whose_saved_state_does_not_fit_restarts(caplog: pytest.LogCaptureFixture) -> None:
    class Counts:
        def get_state(self) -> Mapping[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            raise KeyError("total")

    class Notes(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.counts = Counts()

    callback = Notes()
    give_back(callback, {"counts": {"__state__": {"total": 1}}})
    assert "the callback Notes: the saved state of counts cannot be restored, so it restarts" in caplog.text


def test_weights_of_another_model_are_not_read(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    wider = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, use_bias=False)])
    tf.train.Checkpoint(model=weights_alone(wider)).write(str(prefix))
    with pytest.raises(DataError, match="does not fit call 2 of fit, whose model has other weights"):
        read_weights(prefix, a_line(), 0, 1)


def test_a_test_of_a_position_that_cannot_be_written_is_no_fault_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(checkpoint: Any, path: str) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.train.Checkpoint, "write", write)
    with pytest.raises(StorageError, match=r"cannot test in .* whether the dataset's position can be saved: No space"):
        require_saveable(iter(Dataset.range(3)), "WHAT")


def test_a_checkpoint_of_another_program_does_not_fit(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    tf.train.Checkpoint(weight=tf.Variable([1.0, 2.0])).write(str(prefix))
    model = CheckpointModel(tf.train.Checkpoint(weight=tf.Variable([1.0])), tf.Variable(0))
    with pytest.raises(DataError, match=r"not those of the tf.train.Checkpoint\. Use another `logdir`"):
        model.restore(prefix)


def test_a_graph_whose_summaries_fail_and_one_that_is_to_skip_batches_are_reported() -> None:
    with tf.Graph().as_default() as graph:
        step = tf1.train.get_or_create_global_step()
        with tf.control_dependencies([tf.debugging.Assert(False, ["no"])]):
            summary = tf1.summary.scalar("loss", 1.0)
        session = GraphJobSession(trainerd.GraphJob(graph, tf1.assign_add(step, 1)))
    session.bind(Flag())
    session.run_until(1)
    with pytest.raises(JobError, match="the job's summaries failed"):
        session.run(summary)
    with pytest.raises(JobError, match="a GraphJob cannot skip batches, since its step reads them"):
        session.skip(1)


# ---------------------------------------------------------------------- TensorBoard


def test_a_summary_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def add_event(self, event: Any) -> None:
            raise OSError("no space")

        def get_logdir(self) -> str:
            return "LOGDIR"

    with pytest.raises(StorageError, match="cannot write for TensorBoard in LOGDIR: no space"):
        GraphEvents(Full()).scalars({"loss": 1.0}, 1, 0.0)


# ---------------------------------------------------------------------- releases and predictions


class Offers(FakeSession):
    """A session with something to export."""

    def __init__(self, exportable: Exportable) -> None:
        super().__init__()
        self._exportable = exportable

    def exportable(self) -> Exportable:
        return self._exportable


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Exportable], Trained]:
    """A config, its run directory, and the checkpoint of step 5, of a job that offers something."""

    def make(exportable: Exportable) -> Trained:
        rundir = RunDirectory(tmp_path / "run")
        rundir.create()
        CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("finish"))
        config = parse.parse({"entry": "a:b", "logdir": str(rundir.path)})
        monkeypatch.setattr(open_job, "open_session", lambda config: Offers(exportable))
        return config, rundir, manifest.read(rundir.manifest(5))

    return make


def test_an_export_that_writes_nothing_is_no_release(trained: Any, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="the job's `export` wrote nothing into savedmodel"):
        release(Release(*trained(Exportable(export=lambda folder: None))), tmp_path / "out")


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ([1.0], "predict must return a dict of name to values, and returned [1.0]"),
        ({"a": [1], "b": [1, 2]}, "predict must return columns of the same length, and returned {'a': 1, 'b': 2}"),
    ],
)
def test_predictions_that_are_no_columns_are_refused(trained: Any, tmp_path: Path, returned: Any, says: str) -> None:
    with pytest.raises(JobError) as raised:
        config, rundir, checkpoint = trained(Exportable(predict=lambda: returned))
        predict(config, rundir, checkpoint, tmp_path / "out.csv")
    assert says in str(raised.value)


def test_predictions_go_to_where_a_link_leads_and_into_a_pipe(trained: Any, tmp_path: Path) -> None:
    """As root, `-o /dev/stdout` must not replace the device."""
    config, rundir, checkpoint = trained(Exportable(predict=lambda: {"a": [1, 2]}))
    link, pipe = tmp_path / "link.csv", tmp_path / "pipe"
    link.symlink_to("out.csv")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for output in (link, pipe):
        assert predict(config, rundir, checkpoint, output) == 2
    written = os.read(reader, 100)
    os.close(reader)
    assert link.is_symlink() and (tmp_path / "out.csv").read_bytes() == written and pipe.is_fifo()


DIGEST = "another"
MODEL = keras.Sequential([keras.Input([2]), keras.layers.Dense(1, use_bias=False)])


def own_export(folder: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("exportable", "found", "says"),
    [
        (Exportable(export=own_export), None, "the process that loads savedmodel failed: no memory"),
        (
            Exportable(export=own_export),
            {"call_error": "ValueError: no"},
            "savedmodel loads, but fails with an example that the model takes: ValueError: no",
        ),
        (
            Exportable(export=own_export),
            {"variables": [DIGEST], "calls": 0},
            "1 of the 1 variables of savedmodel are not those of the checkpoint",
        ),
        (
            Exportable(model=MODEL),
            {"calls": 1},
            "the outputs of savedmodel, loaded again, differ from those of the checkpoint by up to 1 times the",
        ),
        (
            Exportable(model=MODEL),
            {"calls": 0, "figures": {"loss": 2.0}},
            "savedmodel, loaded again, has loss 2, and the checkpoint has 1",
        ),
    ],
)
def test_what_a_released_model_gives_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exportable: Exportable, found: Mapping[str, Any] | None, says: str
) -> None:
    references = references_of(exportable, set(), {"loss": 1.0}, tmp_path)

    def load(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        if found is None:
            return subprocess.CompletedProcess([], 1, "", "no memory")
        said = {"trainerd": False, "variables": [each for _, each in references.model], **found}
        return subprocess.CompletedProcess([], 0, json.dumps(said), "")

    inputs = tf.ones([1, 2])
    called = tf.data.Dataset.from_tensors((inputs, [2.0 * MODEL(inputs)]))
    called.save(str(tmp_path / "savedmodel-called" / "0"))
    monkeypatch.setattr(subprocess, "run", load)
    with pytest.raises(ReleaseError) as raised:
        verify(tmp_path / "savedmodel", "savedmodel", references, tmp_path)
    assert says in str(raised.value)


def test_a_file_of_weights_that_does_not_load_is_no_release(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    path.write_text("nothing")
    with pytest.raises(ReleaseError, match=r"model.weights.h5 cannot be loaded into the model"):
        verify(path, "weights", references_of(Exportable(model=MODEL), set(), {}, tmp_path), tmp_path)
