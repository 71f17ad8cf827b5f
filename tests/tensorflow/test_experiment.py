"""The seed's list of an Experiment, argument by argument and method by method, on estimators that only note calls."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.noting import Core, Fitted, as_task, experiment
from trainerd.programs.estimator.run_config import RunConfig
from trainerd.programs.experiment import new_checkpoints
from trainerd.programs.experiment.new_checkpoints import NewCheckpointListener, Throttle
from trainerd.programs.experiment.records import Summary
from trainerd.system.elapsed import Elapsed

tf1 = tf.compat.v1

KINDS: list[type[Any]] = [Fitted, Core]


@pytest.fixture(params=KINDS, ids=["contrib", "core"])
def kind(request: pytest.FixtureRequest) -> type[Any]:
    found: type[Any] = request.param
    return found


class Clock(list[float]):
    """A clock that sleeping moves. The wall clock is set back by a day in the first sleep, and stays there."""

    wall = 1e9

    def sleep(self, secs: float) -> None:
        self[0] += secs
        self.wall = 1e9 - 86400
        assert self[0] < 1e5, "a wait that does not end"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    now = Clock([1000.0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: now.wall)
    monkeypatch.setattr(time, "sleep", now.sleep)
    return now


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[mock.Mock]:
    server = mock.Mock()
    monkeypatch.setattr(tf.distribute, "Server", server)
    yield server


# ---------------------------------------------------------------------- the making


def test_names_order_and_defaults_are_those_of_tensorflow() -> None:
    found = list(inspect.signature(trainerd.Experiment).parameters.values())
    assert [(each.name, each.default) for each in found] == [
        ("estimator", inspect.Parameter.empty),
        ("train_input_fn", inspect.Parameter.empty),
        ("eval_input_fn", inspect.Parameter.empty),
        ("eval_metrics", None),
        ("train_steps", None),
        ("eval_steps", 100),
        ("train_monitors", None),
        ("eval_hooks", None),
        ("local_eval_frequency", None),
        ("eval_delay_secs", 120),
        ("continuous_eval_throttle_secs", 60),
        ("min_eval_frequency", None),
        ("delay_workers_by_global_step", False),
        ("export_strategies", None),
        ("train_steps_per_iteration", None),
        ("checkpoint_and_export", False),
        ("saving_listeners", None),
        ("check_interval_secs", 5),
    ]


def test_what_is_given_is_reported_and_nothing_is_called(tmp_path: Path) -> None:
    estimator = Fitted(tmp_path)
    made = experiment(estimator, eval_metrics="metrics", train_steps=7, eval_steps=3)
    assert (made.estimator, made.eval_metrics, made.train_steps, made.eval_steps) == (estimator, "metrics", 7, 3)
    assert not estimator.trained and not estimator.evaluated


@pytest.mark.parametrize(
    ("missing", "match"), [("evaluate", "Evaluable"), ("fit", "Trainable"), ("model_dir", "Evaluable")]
)
def test_an_estimator_that_cannot_is_refused(missing: str, match: str) -> None:
    given = {"fit": print, "evaluate": print, "model_dir": "d", "config": None}
    del given[missing]
    with pytest.raises(ValueError, match=match):
        experiment(type("Estimator", (), given)())


def test_wrong_arguments_are_refused(tmp_path: Path, kind: type[Any]) -> None:
    estimator = kind(tmp_path)
    for wrong, match in [
        ({"export_strategies": "none"}, "ExportStrategy"),
        ({"export_strategies": ["none"]}, "ExportStrategy"),
        ({"train_steps_per_iteration": "123"}, "`train_steps_per_iteration` must be an integer"),
    ]:
        with pytest.raises(ValueError, match=match):
            experiment(estimator, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`eval_metrics` must be `None`"):
        experiment(Core(tmp_path), eval_metrics="metrics")
    with pytest.raises(ValueError, match="`saving_listeners` must be `None`"):
        experiment(Fitted(tmp_path), saving_listeners=["listener"])


def test_hooks_are_added_and_the_list_that_was_given_stays(tmp_path: Path, kind: type[Any]) -> None:
    given = [tf1.train.SessionRunHook()]
    made = experiment(kind(tmp_path), train_monitors=given)
    another = tf1.train.SessionRunHook()
    made.extend_train_hooks([another])
    made.train(delay_secs=0)
    assert len(given) == 1
    arguments = made.estimator.trained[0]
    assert arguments["monitors" if kind is Fitted else "hooks"] == [*given, another]


class _ThrottledError(Exception):
    """Evaluations of the training that begins are to be so many steps apart."""


def test_how_often_is_once_a_checkpoint_unless_it_is_given(
    tmp_path: Path, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def throttle(secs: float, steps: int) -> Throttle:
        raise _ThrottledError(steps)

    monkeypatch.setattr("trainerd.programs.experiment.experiment.Throttle", throttle)
    for given, steps in ((None, 1), (123, 123)):
        with pytest.raises(_ThrottledError) as caught:
            experiment(kind(tmp_path), min_eval_frequency=given).train_and_evaluate()
        assert caught.value.args == (steps,)


# ---------------------------------------------------------------------- train


def test_train(tmp_path: Path, kind: type[Any]) -> None:
    listeners: Any = {"saving_listeners": ["listener"]} if kind is Core else {}
    made = experiment(kind(tmp_path), train_steps=100, **listeners)
    assert made.train(delay_secs=0) is made.estimator
    (arguments,) = made.estimator.trained
    assert arguments["max_steps"] == 100 and arguments["input_fn"] == "train" and arguments["steps"] is None
    if kind is Core:
        assert arguments["saving_listeners"] == ["listener"]
    assert not made.estimator.evaluated


@pytest.mark.parametrize("secs", [0, 1, 3])
def test_train_waits(tmp_path: Path, kind: type[Any], clock: list[float], secs: int) -> None:
    experiment(kind(tmp_path)).train(delay_secs=secs)
    assert clock[0] == pytest.approx(1000 + secs)


@pytest.mark.parametrize(("task", "secs"), [(0, 0), (1, 5), (3, 15), (20, 60)])
def test_later_tasks_wait_longer(
    tmp_path: Path,
    kind: type[Any],
    clock: list[float],
    servers: mock.Mock,
    monkeypatch: pytest.MonkeyPatch,
    task: int,
    secs: int,
) -> None:
    as_task(monkeypatch, "worker", task, workers=21)
    experiment(kind(tmp_path, config=RunConfig())).train()
    assert clock[0] == pytest.approx(1000 + secs)


def test_or_they_wait_for_the_global_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float], servers: mock.Mock
) -> None:
    as_task(monkeypatch, "worker", 3, workers=4)
    waits = list[int]()
    monkeypatch.setattr(tf1.train.GlobalStepWaiterHook, "__init__", lambda hook, step: waits.append(step))
    made = experiment(Core(tmp_path), delay_workers_by_global_step=True)
    made.train()
    (hook,) = made.estimator.trained[0]["hooks"]
    assert isinstance(hook, tf1.train.GlobalStepWaiterHook)
    assert waits == [int(8000 * math.log(4))] and clock[0] == 1000


def test_a_task_of_a_cluster_starts_its_server(
    tmp_path: Path, kind: type[Any], monkeypatch: pytest.MonkeyPatch, servers: mock.Mock, clock: list[float]
) -> None:
    as_task(monkeypatch, "worker", 1)
    config = RunConfig()
    experiment(kind(tmp_path, config=config)).train(delay_secs=1)
    servers.assert_called_once_with(
        config.cluster_spec, job_name="worker", task_index=1, config=config.session_config, start=False
    )
    servers.return_value.start.assert_called_once_with()
    assert clock[0] == pytest.approx(1001)


@pytest.mark.parametrize(("delay", "secs"), [(None, 10), (7, 7), (0, 0)])
def test_the_protocol_and_the_delay_of_a_worker_are_those_of_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: mock.Mock, clock: list[float], delay: int, secs: int
) -> None:
    as_task(monkeypatch, "worker", 1)
    config = RunConfig(protocol="grpc", experimental_max_worker_delay_secs=delay)
    trainerd.train_and_evaluate(Core(tmp_path, config=config), trainerd.TrainSpec(None), trainerd.EvalSpec(None))
    assert servers.call_args.kwargs["protocol"] == "grpc" and clock[0] == pytest.approx(1000 + secs)
    experiment(Core(tmp_path, config=config)).train()
    assert clock[0] == pytest.approx(1000 + secs + min(5, secs))


def test_no_server_without_a_cluster(tmp_path: Path, kind: type[Any], servers: mock.Mock) -> None:
    experiment(kind(tmp_path)).train(delay_secs=0)
    servers.assert_not_called()
    with pytest.raises(ValueError, match="Could not start server"):
        experiment(kind(tmp_path)).run_std_server()


def test_run_std_server(tmp_path: Path, kind: type[Any], monkeypatch: pytest.MonkeyPatch, servers: mock.Mock) -> None:
    as_task(monkeypatch, "ps", 1)
    experiment(kind(tmp_path, config=RunConfig())).run_std_server()
    assert servers.return_value.mock_calls == [mock.call.start(), mock.call.join()]


# ---------------------------------------------------------------------- evaluate, continuous_eval


def test_evaluate(tmp_path: Path, kind: type[Any], clock: list[float]) -> None:
    hook = tf1.train.SessionRunHook()
    made = experiment(kind(tmp_path, {"loss": 1.0}), eval_hooks=[hook], eval_steps=3, eval_delay_secs=2)
    assert made.evaluate() == {"loss": 1.0} and clock[0] == pytest.approx(1002)
    assert made.evaluate(delay_secs=0, name="mine") == {"loss": 1.0} and clock[0] == pytest.approx(1002)
    first, second = made.estimator.evaluated
    assert first == {"input_fn": "eval", "steps": 3, "name": "one_pass", "checkpoint_path": None, "hooks": [hook]}
    assert second["name"] == "mine"


def continuing(estimator: Any, **more: Any) -> trainerd.Experiment:
    estimator.checkpoint()
    return experiment(estimator, **{"eval_delay_secs": 0, "continuous_eval_throttle_secs": 0} | more)


@pytest.mark.parametrize("secs", [0, 1, 2])
def test_continuous_eval_continues_in_a_rhythm(tmp_path: Path, kind: type[Any], clock: list[float], secs: int) -> None:
    made = continuing(kind(tmp_path), continuous_eval_throttle_secs=secs)
    with pytest.raises(StopIteration):
        made.continuous_eval(evaluate_checkpoint_only_once=False)
    assert len(made.estimator.evaluated) == 6 and clock[0] == pytest.approx(1000 + 5 * secs)
    assert {each["name"] for each in made.estimator.evaluated} == {"continuous"}


def test_continuous_eval_ends_with_the_training(tmp_path: Path, kind: type[Any]) -> None:
    made = continuing(kind(tmp_path, {"global_step": 100}), train_steps=100)
    made.continuous_eval(name="other")
    assert [each["name"] for each in made.estimator.evaluated] == ["other"]
    assert made.estimator.evaluated[0]["checkpoint_path"].endswith("model.ckpt-0")


def test_continuous_eval_ends_when_the_predicate_says_so(tmp_path: Path, kind: type[Any]) -> None:
    made = continuing(kind(tmp_path))
    made.continuous_eval(
        evaluate_checkpoint_only_once=False,
        continuous_eval_predicate_fn=lambda results: len(made.estimator.evaluated) < 3,
    )
    assert len(made.estimator.evaluated) == 3
    seen: list[Any] = []

    def goes_on(results: Any, checkpoint_path: Any) -> bool:
        seen.append(checkpoint_path)
        return len(seen) < 2

    made.continuous_eval(continuous_eval_predicate_fn=goes_on)
    assert seen[0] is None and seen[1].endswith("model.ckpt-0")
    with pytest.raises(ValueError, match="must be a callable"):
        made.continuous_eval(continuous_eval_predicate_fn="no")  # type: ignore[arg-type]


class Late(Core):
    """Evaluates slower than the training saves: the first checkpoint is deleted before it is read."""

    is_deleted = True
    error: Exception = tf.errors.NotFoundError(None, None, "Failed to find any matching files")

    def evaluate(self, **arguments: Any) -> Any:  # type: ignore[override]
        result = super().evaluate(**arguments)
        if len(self.evaluated) == 1:
            if self.is_deleted:
                self.checkpoint(1)
                for file in self._folder.glob("model.ckpt-0.*"):
                    file.unlink()
            raise self.error
        return result


@pytest.mark.parametrize("error", [Late.error, ValueError("The passed save_path is not a valid checkpoint")])
def test_a_checkpoint_that_is_deleted_before_it_is_evaluated_is_passed_over(
    tmp_path: Path, clock: list[float], error: Exception
) -> None:
    late = Late(tmp_path, {"global_step": 100})
    late.error = error
    continuing(late, train_steps=100).continuous_eval()
    assert [each["checkpoint_path"].rpartition("-")[2] for each in late.evaluated] == ["0", "1"]


@pytest.mark.parametrize("error", [Late.error, ValueError("a wrong input")])
def test_another_error_of_its_kind_ends_the_evaluation(tmp_path: Path, clock: list[float], error: Exception) -> None:
    late = Late(tmp_path, {"global_step": 100})
    late.is_deleted, late.error = False, error
    with pytest.raises(type(error)):
        continuing(late, train_steps=100).continuous_eval()


def test_continuous_eval_evaluates_a_checkpoint_once(tmp_path: Path, kind: type[Any], clock: list[float]) -> None:
    made = continuing(kind(tmp_path, {"global_step": 100}))
    results: list[Any] = []

    def goes_on(result: Any) -> bool:
        results.append(result)
        return len(results) < 30

    with mock.patch.object(tf1.logging, "warning") as warning:
        made.continuous_eval(continuous_eval_predicate_fn=goes_on)
    assert len(made.estimator.evaluated) == 1 and sum(bool(each) for each in results) == 1
    assert [call.args[0] for call in warning.mock_calls] == ["No new checkpoint ready for evaluation."]


def test_continuous_eval_waits_for_the_first_checkpoint(tmp_path: Path, kind: type[Any], clock: list[float]) -> None:
    made = experiment(kind(tmp_path, {"global_step": 1}), eval_delay_secs=7, train_steps=1)
    looks: list[float] = []

    def goes_on(result: Any) -> bool:
        looks.append(clock[0])
        if len(looks) == 13:
            made.estimator.checkpoint()
        return True

    with mock.patch.object(tf1.logging, "warning") as warning:
        made.continuous_eval(continuous_eval_predicate_fn=goes_on)
    assert looks[1] == pytest.approx(1067) and len(made.estimator.evaluated) == 1
    assert len(warning.mock_calls) == 2, "once in ten minutes"


def test_continuous_eval_on_train_data(tmp_path: Path, kind: type[Any]) -> None:
    made = continuing(kind(tmp_path, {"global_step": 9}), train_steps=9)
    made.continuous_eval_on_train_data()
    assert made.estimator.evaluated[0]["input_fn"] == "train"
    assert made.estimator.evaluated[0]["name"] == "continuous_on_train_data"


# ---------------------------------------------------------------------- train_and_evaluate and its like


def strategy(**more: Any) -> trainerd.ExportStrategy:
    return trainerd.make_export_strategy(lambda: None, exports_to_keep=None, **more)


def hooks_of(estimator: Any, training: int = 0) -> Any:
    return estimator.trained[training]["monitors" if isinstance(estimator, Fitted) else "hooks"]


def test_train_and_evaluate(tmp_path: Path, kind: type[Any]) -> None:
    hook = tf1.train.SessionRunHook()
    made = experiment(kind(tmp_path, {"loss": 1.0}), eval_hooks=[hook], train_steps=100, export_strategies=strategy())
    assert made.train_and_evaluate() == ({"loss": 1.0}, [b"exported"])
    estimator = made.estimator
    assert (len(estimator.trained), len(estimator.evaluated), estimator.exported) == (1, 1, 1)
    assert estimator.evaluated[0]["name"] is None and estimator.evaluated[0]["hooks"] == [hook]
    (watching,) = hooks_of(estimator)
    assert isinstance(watching, tf1.train.SessionRunHook)
    made.train(delay_secs=0)
    assert hooks_of(estimator, 1) == [], "the next training has it not"


def test_without_a_frequency_it_evaluates_at_the_end(tmp_path: Path, kind: type[Any]) -> None:
    made = experiment(kind(tmp_path), train_steps=100, min_eval_frequency=0)
    made.train_and_evaluate()
    assert hooks_of(made.estimator) == [] and len(made.estimator.evaluated) == 1


def test_strategies_are_reset(tmp_path: Path, kind: type[Any]) -> None:
    first = strategy()
    made = experiment(kind(tmp_path), train_steps=100, export_strategies=(first,))
    made.train_and_evaluate()
    assert made.estimator.exported == 1
    assert made.reset_export_strategies() == (first,)
    made.train_and_evaluate()
    assert made.estimator.exported == 1
    assert made.reset_export_strategies([strategy(), strategy()]) == ()
    made.train_and_evaluate()
    assert made.estimator.exported == 3


def test_a_key_of_contrib_is_refused_with_a_model_fn(tmp_path: Path) -> None:
    made = experiment(Core(tmp_path), export_strategies=strategy(default_output_alternative_key="key"))
    with pytest.raises(ValueError, match="default_output_alternative_key is not supported"):
        made.train_and_evaluate()


def test_local_run_is_train_and_evaluate_and_deprecated(
    tmp_path: Path, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    frequencies = list[int]()

    def throttle(secs: float, steps: int) -> Throttle:
        frequencies.append(steps)
        return Throttle(secs, steps)

    monkeypatch.setattr("trainerd.programs.experiment.experiment.Throttle", throttle)
    with pytest.warns(DeprecationWarning, match="local_eval_frequency is deprecated"):
        made = experiment(kind(tmp_path), train_steps=100, local_eval_frequency=10)
    with pytest.warns(DeprecationWarning, match="local_run will be renamed"):
        made.local_run()
    assert len(made.estimator.trained) == len(made.estimator.evaluated) == 1
    assert len(hooks_of(made.estimator)) == 1
    made.train_and_evaluate()
    assert frequencies == [10, 1]


def test_continuous_train_and_eval(tmp_path: Path, kind: type[Any]) -> None:
    made = experiment(kind(tmp_path, {"global_step": 100}), train_steps=100, export_strategies=strategy())
    metrics, exports = made.continuous_train_and_eval()
    assert metrics == {"global_step": 100} and exports == [b"exported"]
    estimator = made.estimator
    assert (len(estimator.trained), len(estimator.evaluated), estimator.exported) == (1, 1, 1)


def test_continuous_train_and_eval_exports_after_every_evaluation(
    tmp_path: Path, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = kind(tmp_path, {"loss": 1.0})
    steps, answers, checkpoint = iter((5, 10, 15)), iter((True, True, True, False)), estimator.checkpoint
    monkeypatch.setattr(estimator, "checkpoint", lambda: checkpoint(next(steps)))
    made = experiment(estimator, export_strategies=strategy())
    assert made.continuous_train_and_eval(lambda result: next(answers)) == ({"loss": 1.0}, [b"exported"])
    assert (len(estimator.evaluated), estimator.exported) == (3, 3)


def test_continuous_train_and_eval_asks_first(tmp_path: Path, kind: type[Any]) -> None:
    made = experiment(kind(tmp_path), train_steps=10**11, export_strategies=())
    assert made.continuous_train_and_eval(continuous_eval_predicate_fn=lambda result: False) == (None, None)
    assert not made.estimator.trained and not made.estimator.evaluated
    with pytest.raises(ValueError, match="`continuous_eval_predicate_fn` must be a callable"):
        made.continuous_train_and_eval(continuous_eval_predicate_fn="fn")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "steps"),
    [({"train_steps": 10**14}, 10**13), ({"train_steps": 10**14, "train_steps_per_iteration": 1234}, 1234), ({}, 1000)],
)
def test_an_iteration_has_so_many_steps(tmp_path: Path, more: dict[str, Any], steps: int) -> None:
    estimator = mock.Mock(trainerd.Estimator)
    type(estimator).model_dir = mock.PropertyMock(return_value=str(tmp_path))
    experiment(estimator, **more).continuous_train_and_eval(lambda result: result is None)
    estimator.train.assert_called_once_with(
        input_fn="train", steps=steps, max_steps=mock.ANY, hooks=mock.ANY, saving_listeners=mock.ANY
    )


def test_test(tmp_path: Path, kind: type[Any]) -> None:
    made = experiment(kind(tmp_path, {"loss": 1.0}), export_strategies=(strategy(),))
    assert made.test() == {"loss": 1.0}
    estimator = made.estimator
    assert estimator.trained[0]["steps"] == 1 and estimator.evaluated[0]["steps"] == 1 and estimator.exported == 1


def test_an_evaluation_is_due_in_its_time_although_the_clock_is_set_back(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_checkpoints, "Elapsed", lambda: Elapsed(time.time, time.monotonic))
    once = mock.Mock(**{"is_unfinished.return_value": False})
    once.records.reason.return_value = "schedule"
    once.records.summary = Summary(count=1, last_step=1, last_at=time.time())
    listener = NewCheckpointListener(once, Throttle(secs=100.0))
    listener.after_save(None, 2)
    clock.sleep(99)
    listener.after_save(None, 3)
    assert not once.called
    clock.sleep(1)
    listener.after_save(None, 4)
    assert once.call_count == 1
