"""Programs that derive from TensorFlow's classes, or go past their public names, as many do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import Counter, counter, saved, supervised, train_supervised, value
from trainerd.errors import ConfigError, DataError, InUseError

tf1 = tf.compat.v1


def train(logdir: Path, steps: int, kind: Any = trainerd.Supervisor, **options: Any) -> int:
    """Train with a subclass. The step at which it began."""
    found = counter()
    with found.graph.as_default():
        if make := options.pop("manager", None):
            options["session_manager"] = make(found)
        with kind(logdir=str(logdir), **options).managed_session() as session:
            began = int(session.run(found.global_step))
            for _ in range(steps):
                session.run(found.train_op)
    return began


# ---------------------------------------------------------------------- session managers of a program's own


class OfOld(tf.compat.v1.train.SessionManager):  # type: ignore[misc]
    """With the arguments that TensorFlow 1.0 had."""

    def prepare_session(
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Any = None,
        init_fn: Any = None,
    ) -> Any:
        return super().prepare_session(master, init_op, saver, checkpoint_dir, config=config)


class Alone(tf.compat.v1.train.SessionManager):  # type: ignore[misc]
    """Restores by itself, where it is told to look."""

    def prepare_session(self, master: str, checkpoint_dir: Any = None, saver: Any = None, **_: Any) -> Any:
        session = tf1.Session(master)
        session.run(tf1.get_collection("initializes"))
        if (found := tf1.train.latest_checkpoint(checkpoint_dir)) is not None:
            saver.restore(session, found)
        return session


class Forgetful(Alone):
    """Restores nothing."""

    def prepare_session(self, master: str, checkpoint_dir: Any = None, saver: Any = None, **_: Any) -> Any:
        return super().prepare_session(master, str(Path(checkpoint_dir) / "none"), saver)


def managing(kind: Any) -> Callable[[Counter], Any]:
    def make(found: Counter) -> Any:
        tf1.add_to_collection("initializes", tf1.global_variables_initializer())
        return kind(ready_op=tf1.report_uninitialized_variables(), graph=found.graph)

    return make


@pytest.mark.parametrize("kind", [OfOld, Alone])
def test_a_session_manager_is_given_where_to_look(tmp_path: Path, kind: Any) -> None:
    assert [train(tmp_path, 10, manager=managing(kind)) for _ in range(3)] == [0, 10, 20]
    (tmp_path / "checkpoint").unlink()  # it is named anew for who looks there
    assert train(tmp_path, 5, manager=managing(kind)) == 30
    assert value(tmp_path) == 70.0


def test_a_session_manager_that_restores_nothing_does_not_begin_over_a_run(tmp_path: Path) -> None:
    assert train(tmp_path, 10) == 0
    with pytest.raises(DataError, match=r"began at step 0, and .*-10, from which the run resumes, has step 10"):
        train(tmp_path, 10, manager=managing(Forgetful))
    assert saved(tmp_path)[0] == (10, "finish") and train(tmp_path, 1) == 10


def test_a_session_that_a_program_made_is_looked_after_from_when_services_are_started(tmp_path: Path) -> None:
    for began in (0, 10):
        found = counter()
        with found.graph.as_default():
            sv = trainerd.Supervisor(logdir=str(tmp_path))
            session = sv.session_manager.prepare_session(
                "", init_op=sv.init_op, saver=sv.saver, checkpoint_dir=str(tmp_path)
            )
            assert session.run(found.global_step) == began
            sv.start_standard_services(session)
            for _ in range(10):
                session.run(found.train_op)
            sv.stop()
            session.close()
        assert saved(tmp_path)[0] == (began + 10, "finish")


def test_a_session_that_is_ahead_of_its_checkpoint_is_looked_after(tmp_path: Path) -> None:
    assert train(tmp_path, 10) == 0
    found = counter()
    with found.graph.as_default():
        sv = trainerd.Supervisor(logdir=str(tmp_path))
        with tf1.Session() as session:
            sv.saver.restore(session, tf.train.latest_checkpoint(tmp_path))
            session.run(found.train_op)
            sv.start_standard_services(session)
            session.run(found.train_op)
            sv.stop()
    assert saved(tmp_path)[0] == (12, "finish")


@pytest.mark.parametrize("kind", [trainerd.Supervisor, trainerd.MonitoredTrainingSession])
def test_a_url_is_no_run_directory(tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow writes there; what began anew in a folder of that name here would hide its checkpoints."""
    monkeypatch.chdir(tmp_path)
    with counter().graph.as_default(), pytest.raises(ConfigError, match="is made of a URL"):
        kind(**{"logdir" if kind is trainerd.Supervisor else "checkpoint_dir": f"file://{tmp_path}/run"})
    assert not list(tmp_path.iterdir())


def test_a_session_between_two_epochs_is_not_ended_for_another(tmp_path: Path) -> None:
    found = counter()
    with found.graph.as_default():
        data = tf1.data.make_initializable_iterator(tf.data.Dataset.range(3))
        with tf.control_dependencies([data.get_next()]):
            step = tf1.assign_add(found.global_step, 1)
        sv = trainerd.Supervisor(logdir=str(tmp_path))
        session = sv.prepare_or_wait_for_session()
        for _ in range(2):
            session.run(data.initializer)
            with contextlib.suppress(tf.errors.OutOfRangeError):
                while True:
                    session.run(step)
            with pytest.raises(InUseError):
                train(tmp_path, 1)
        sv.stop()
        session.close()
    assert saved(tmp_path)[0] == (6, "finish")


# ---------------------------------------------------------------------- Savers


@pytest.mark.parametrize("between", [trainerd.Supervisor, tf1.train.Supervisor])
def test_a_step_that_is_saved_once_more_by_a_saver_is_gone_on_with(tmp_path: Path, between: Any) -> None:
    """The values are the same, so the index is; the graph beside it is not."""
    train_supervised(tmp_path, 12)
    found = counter()
    with found.graph.as_default():
        tf1.constant(1.0, name="more")
        sv = between(logdir=str(tmp_path), saver=tf1.train.Saver(), save_model_secs=0)
        with sv.managed_session() as session:
            assert session.run(found.global_step) == 12
            sv.saver.save(session, str(tmp_path / "model.ckpt"), global_step=12)
    reported = json.loads((tmp_path / "model.ckpt-12.json").read_text())
    assert train(tmp_path, 1) == 12
    assert not (tmp_path / "quarantine").exists()
    if between is trainerd.Supervisor:  # that knows the graph; the values are those that the manifest tells of
        again = json.loads((tmp_path / "model.ckpt-12.json").read_text())
        assert [again[name] for name in ("reason", "at", "fingerprint")] == [
            reported[name] for name in ("reason", "at", "fingerprint")
        ]


def test_a_damaged_graph_is_not_taken_for_one_that_was_saved_again(tmp_path: Path) -> None:
    train_supervised(tmp_path, 12)
    meta = tmp_path / "model.ckpt-12.meta"
    meta.write_bytes(meta.read_bytes()[:-9])
    train(tmp_path, 1)
    assert [path.name for path in (tmp_path / "quarantine").glob("*.meta")] == [meta.name]


def test_a_supervisors_saver_saves_after_it_has_stopped(tmp_path: Path) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with found.graph.as_default(), sv.managed_session() as session:
        for stops in (True, False):
            for _ in range(10):
                session.run(found.train_op)
            if stops:
                sv.stop(close_summary_writer=False)
        assert sv.saver.save(session, sv.save_path, global_step=sv.global_step) == f"{sv.save_path}-20"
        assert sv.saver.last_checkpoints[-2:] == [f"{sv.save_path}-10", f"{sv.save_path}-20"]
    assert train(tmp_path, 1) == 20


def test_checkpoints_by_other_names_are_listed_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = counter()
    sv = supervised(found.graph, tmp_path)
    with found.graph.as_default(), sv.managed_session() as session:
        sv.saver.save(session, sv.save_path, global_step=sv.global_step)  # no save is under way after this
        for _ in range(3):
            session.run(found.train_op)
            sv.saver.save(session, str(tmp_path / "mine"), global_step=sv.global_step)
        assert [Path(each).name for each in sv.saver.last_checkpoints][-3:] == ["mine-1", "mine-2", "mine-3"]
    assert "Manually adding" not in caplog.text


# ---------------------------------------------------------------------- within a monitored session


@pytest.mark.parametrize("module", [tf1.train, trainerd])
def test_the_raw_session_is_where_programs_find_it(tmp_path: Path, module: Any) -> None:
    found = counter(use_resource=False)
    with found.graph.as_default():
        saver = tf1.train.Saver()
        with module.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
            session.run(found.train_op)
            saver.save(session._tf_sess(), str(tmp_path / "best"))
    assert tf.train.load_checkpoint(str(tmp_path / "best")).get_tensor("tf_p") == 2.0


@pytest.mark.parametrize("module", [tf1.train, trainerd])
def test_creators_are_derived_from(tmp_path: Path, module: Any) -> None:
    class Chief(module.ChiefSessionCreator):  # type: ignore[misc]
        def create_session(self) -> Any:
            self._scaffold.finalize()
            assert self._session_manager is None and self._checkpoint_filename_with_path is None
            return self._get_session_manager().prepare_session(self._master, init_op=self._scaffold.init_op)

    class Worker(module.WorkerSessionCreator):  # type: ignore[misc]
        def create_session(self) -> Any:
            self._scaffold.finalize()
            return self._get_session_manager().prepare_session(self._master, init_op=self._scaffold.init_op)

    for kind in (Chief, Worker):
        found = counter()
        with found.graph.as_default(), module.MonitoredSession(kind()) as session:
            session.run(found.train_op)
            assert session.run(found.p) == 2.0
