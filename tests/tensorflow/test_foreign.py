"""Checkpoints that a program's own Saver wrote, and `checkpoint` in every shape: what a session goes on from."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import counter
from trainerd.checkpoints import checkpoint_state
from trainerd.errors import DataError
from trainerd.rundir.paths import RunDirectory

tf1 = tf.compat.v1


def saved_by_tensorflow(folder: Path, step: int, *, name: str = "model.ckpt") -> None:
    """As a program of TensorFlow's alone leaves it: a Saver's files, and `checkpoint`."""
    found = counter()
    with tf1.Session(graph=found.graph) as sess, found.graph.as_default():
        folder.mkdir(exist_ok=True)
        sess.run(tf1.global_variables_initializer())
        sess.run(tf1.assign(found.global_step, step))
        tf1.train.Saver().save(sess, str(folder / name), step)


def supervisor(folder: Path) -> int:
    found, seen = counter(), list[int]()
    with trainerd.Supervisor(graph=found.graph, logdir=str(folder)).managed_session() as sess:
        seen.append(int(sess.run(found.global_step)))
    return seen[0]


def training(folder: Path) -> int:
    found, seen = counter(), list[int]()
    with found.graph.as_default(), trainerd.MonitoredTrainingSession(checkpoint_dir=str(folder)) as sess:
        seen.append(int(sess.run(found.global_step)))
    return seen[0]


def evaluator(folder: Path) -> int:
    found, seen = counter(), list[int]()
    with found.graph.as_default(), trainerd.SingularMonitoredSession(checkpoint_dir=str(folder)) as sess:
        seen.append(int(sess.run(found.global_step)))
    return seen[0]


every_session = pytest.mark.parametrize("start", [supervisor, training, evaluator])
Start = Callable[[Path], int]


@every_session
@pytest.mark.parametrize("name", ["model.ckpt", "mine"])
def test_it_is_gone_on_from(tmp_path: Path, start: Start, name: str) -> None:
    folder = tmp_path / "rün ✓"
    saved_by_tensorflow(folder, 7, name=name)
    assert start(folder) == 7


@every_session
@pytest.mark.parametrize(
    ("name", "part"), [("model.ckpt", "data-00000-of-00001"), ("mine", "data-00000-of-00001"), ("mine", "index")]
)
def test_where_it_cannot_be_read_nothing_restarts(tmp_path: Path, start: Start, name: str, part: str) -> None:
    saved_by_tensorflow(tmp_path, 7, name=name)
    damaged = tmp_path / f"{name}-7.{part}"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(DataError, match=f"{name}-7"):
        start(tmp_path)


@every_session
def test_where_nothing_names_it_nothing_restarts_over_it(tmp_path: Path, start: Start) -> None:
    saved_by_tensorflow(tmp_path, 7, name="mine")
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(DataError, match="mine-7"):
        start(tmp_path)
    for path in tmp_path.glob("mine-7.*"):  # what an init_fn begins with
        path.rename(path.with_name(path.name.replace("mine-7", "pretrained")))
    assert start(tmp_path) == 0


def test_a_run_under_another_basename_is_not_restarted(tmp_path: Path) -> None:
    def begin(name: str) -> int:
        found = counter()
        run = trainerd.Supervisor(graph=found.graph, logdir=str(tmp_path), checkpoint_basename=name)
        with run.managed_session() as sess:
            sess.run(found.train_op)
            return int(sess.run(found.global_step))

    assert (begin("model.ckpt"), begin("other")) == (1, 2)
    (tmp_path / "checkpoint").unlink()
    for path in tmp_path.glob("other*"):
        path.unlink()
    with pytest.raises(DataError, match=r"model\.ckpt-1"):
        begin("other")


def test_one_that_somebody_put_there_is_not_gone_on_from(tmp_path: Path) -> None:
    found = counter()
    with trainerd.Supervisor(graph=found.graph, logdir=str(tmp_path / "run")).managed_session() as sess:
        sess.run(found.train_op)
    saved_by_tensorflow(tmp_path / "other", 50)
    for path in (tmp_path / "other").glob("model.ckpt-50.*"):
        path.rename(tmp_path / "run" / path.name)
    assert supervisor(tmp_path / "run") == 1 and RunDirectory(tmp_path / "run").steps()[0] == 1


def test_what_a_killed_deletion_left_is_not_adopted(tmp_path: Path) -> None:
    rundir, found = RunDirectory(tmp_path), counter()
    run = trainerd.Supervisor(graph=found.graph, logdir=str(tmp_path))
    for _ in range(2):
        with run.managed_session() as sess:
            sess.run(found.train_op)
    assert rundir.steps() == [2, 1, 0]
    rundir.manifest(1).rename(rundir.deletion(1))  # SIGKILL, before its other files were deleted
    assert supervisor(tmp_path) == 2
    assert rundir.steps() == [2, 0] and not list(tmp_path.glob("model.ckpt-1.*"))


@every_session
def test_a_checkpoint_file_that_says_nothing_is_not_believed(tmp_path: Path, start: Start) -> None:
    saved_by_tensorflow(tmp_path / "run", 7, name="mine")
    saved_by_tensorflow(tmp_path / "other", 5, name="foo")
    for content in (b"", b"\xff\x00garbage", b'model_checkpoint_path: "../other/foo-5"\n'):
        (tmp_path / "run" / "checkpoint").write_bytes(content)
        with pytest.raises(DataError, match="checkpoint: it names none that is here"):
            start(tmp_path / "run")


@every_session
def test_a_folder_that_was_moved_is_gone_on_from(tmp_path: Path, start: Start) -> None:
    """The Saver has written absolute paths; and a link is another name of the same folder."""
    saved_by_tensorflow(tmp_path / "was", 7, name="mine")
    (tmp_path / "was").rename(tmp_path / "is")
    (tmp_path / "link").symlink_to(tmp_path / "is")
    assert start(tmp_path / "link") == 7


@every_session
def test_one_in_another_folder_is_not_passed_over_in_silence(tmp_path: Path, start: Start) -> None:
    saved_by_tensorflow(tmp_path / "other", 7, name="mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint").write_text(f'model_checkpoint_path: "{tmp_path}/other/mine-7"\n')
    with pytest.raises(DataError, match="in another folder"):
        start(tmp_path / "run")


@every_session
def test_the_first_format_is_gone_on_from(tmp_path: Path, start: Start) -> None:
    found = counter()
    with found.graph.as_default(), tf1.Session() as sess:
        sess.run(tf1.global_variables_initializer())
        sess.run(tf1.assign(found.global_step, 7))
        tf1.train.Saver(write_version=tf1.train.SaverDef.V1).save(sess, str(tmp_path / "mine"), 7)
    assert start(tmp_path) == 7


@every_session
def test_a_fifo_in_its_place_hangs_nothing(tmp_path: Path, start: Start) -> None:
    assert supervisor(tmp_path) == 0
    (tmp_path / "checkpoint").unlink()
    os.mkfifo(tmp_path / "checkpoint")
    assert start(tmp_path) == 0


def test_what_tensorflows_own_hook_saves_is_gone_on_from(tmp_path: Path) -> None:
    """It writes over the checkpoint of the step at which it begins, whose manifest then tells of another file."""

    def run(steps: int, hooks: list[Any] | None = None, **options: Any) -> int:
        found = counter()
        with (
            found.graph.as_default(),
            trainerd.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks, **options) as sess,
        ):
            begun = int(sess.run(found.global_step))
            for _ in range(steps):
                sess.run(found.train_op)
        return begun

    assert run(10) == 0
    for begun in (10, 20, 30):
        hook = tf1.train.CheckpointSaverHook(str(tmp_path), save_steps=5)
        assert run(10, [hook], save_checkpoint_secs=None) == begun
    assert run(0) == 40


@pytest.mark.parametrize("folder", ["runs/a", "./runs/a", "runs//a/"])
@pytest.mark.parametrize("make", [trainerd.SingularMonitoredSession, trainerd.MonitoredTrainingSession])
def test_a_hook_keeps_as_many_as_its_saver_says_however_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"save_checkpoint_secs": None, "save_checkpoint_steps": None}
    for begun in (0, 5, 10):
        found = counter()
        with found.graph.as_default():
            scaffold = tf1.train.Scaffold(saver=tf1.train.Saver(max_to_keep=1))
            hook = tf1.train.CheckpointSaverHook(folder, save_steps=100, scaffold=scaffold)
            with make(
                hooks=[hook],
                scaffold=scaffold,
                checkpoint_dir=folder,
                **(options if make is trainerd.MonitoredTrainingSession else {}),
            ) as session:
                kept = [path.name for path in (tmp_path / "runs/a").glob("*.index")]
                assert kept == [f"model.ckpt-{begun}.index"] and session.run(found.global_step) == begun
                for _ in range(5):
                    session.run(found.train_op)


def test_a_checkpoint_file_that_names_what_is_gone_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for warnings in (0, 1):
        (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n' * warnings)
        found = counter()
        with found.graph.as_default(), trainerd.SingularMonitoredSession(checkpoint_dir=str(tmp_path)) as session:
            assert session.run(found.global_step) == 0
        assert [record.getMessage() for record in caplog.records if "does not exist" in record.getMessage()] == [
            f"{tmp_path}/checkpoint names model.ckpt-5, which does not exist, and there is no other checkpoint: "
            "training starts at step 0"
        ] * warnings


def test_names_in_other_alphabets_are_understood(tmp_path: Path) -> None:
    folder = tmp_path / "ünï'\\ \"日本"
    folder.mkdir()
    for named in ("mine-5", str(folder / "mine-5")):
        state = tf1.train.generate_checkpoint_state_proto(str(folder), named)
        path = folder / "checkpoint"
        path.write_text(str(state))
        assert checkpoint_state.named(path) == "mine-5"
