"""run_experiment and RunConfig: which schedule a task runs, and what TF_CONFIG says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.noting import CLUSTER, Fitted, as_task, experiment
from trainerd.programs.estimator.run_config import RunConfig
from trainerd.programs.experiment.schedules import default_schedule

tf1 = tf.compat.v1

MASTERED = {"ps": ["host1:2222"], "worker": ["host3:2222"], "master": ["host5:2222"]}


def built(folder: Path, calls: list[Any]) -> Callable[..., Any]:
    def experiment_fn(output_dir: str) -> trainerd.Experiment:
        calls.append(output_dir)
        return experiment(Fitted(folder, {"loss": 1.0}), train_steps=1, eval_delay_secs=0)

    return experiment_fn


def test_run_experiment_runs_a_schedule(tmp_path: Path) -> None:
    calls: list[Any] = []
    assert trainerd.run_experiment(built(tmp_path, calls), "out", "evaluate") == {"loss": 1.0} and calls == ["out"]
    assert trainerd.run_experiment(built(tmp_path, calls), "out") == ({"loss": 1.0}, [])


def test_the_other_kind_takes_settings(tmp_path: Path) -> None:
    config, given = RunConfig(model_dir=str(tmp_path)), []

    def experiment_fn(run_config: RunConfig, hparams: Any) -> trainerd.Experiment:
        given.append((run_config, hparams))
        return experiment(Fitted(tmp_path, {"loss": 1.0}), eval_delay_secs=0)

    found = trainerd.run_experiment(experiment_fn, schedule="evaluate", run_config=config, hparams={"lr": 1})
    assert found == {"loss": 1.0} and given == [(config, {"lr": 1})]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({}, ValueError, "Must set value for `output_dir` or `run_config`"),
        ({"output_dir": "", "schedule": "train"}, ValueError, "Must specify an output directory"),
        ({"output_dir": "o", "run_config": RunConfig(model_dir="m")}, ValueError, "Cannot provide both"),
        ({"run_config": RunConfig()}, ValueError, "Must specify a model directory"),
        ({"run_config": "config"}, ValueError, "must be `trainerd.RunConfig` instance"),
        ({"output_dir": "o", "hparams": 1}, ValueError, "Must set `hparams` as None"),
        ({"output_dir": "o", "schedule": "mispelled"}, ValueError, "references non-existent task mispelled"),
        ({"output_dir": "o", "schedule": "eval_steps"}, TypeError, "references non-callable member eval_steps"),
    ],
)
def test_what_run_experiment_refuses(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        trainerd.run_experiment(built(tmp_path, []), **arguments)
    with pytest.raises(TypeError, match="is not callable"):
        trainerd.run_experiment("experiment", **arguments)  # type: ignore[arg-type]


def test_what_is_built_is_an_experiment() -> None:
    with pytest.raises(TypeError, match="did not return an Experiment"):
        trainerd.run_experiment(lambda output_dir: "none", "o", "train")  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("task", "schedule"),
    [
        ("chief", "train_and_evaluate"),
        ("worker", "train"),
        ("ps", "run_std_server"),
        ("evaluator", "continuous_eval"),
    ],
)
def test_the_task_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, schedule: str) -> None:
    as_task(monkeypatch, task, 0)
    made = experiment(Fitted(tmp_path, config=RunConfig()))
    with mock.patch.object(trainerd.Experiment, schedule) as run:
        trainerd.run_experiment(lambda output_dir: made, "o")
    run.assert_called_once_with()


@pytest.mark.parametrize("cluster", [{}, {"foo": ["localhost:1"]}])
def test_one_task_alone_trains_and_evaluates(cluster: dict[str, list[str]]) -> None:
    config = SimpleNamespace(cluster_spec=tf.train.ClusterSpec(cluster), task_type=None)
    assert default_schedule(config) == "train_and_evaluate"


# ---------------------------------------------------------------------- TF_CONFIG


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "TF_CONFIG is not JSON"),
        ("[1]", "TF_CONFIG must be a JSON object"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}', 'must have one "chief" node'),
        (json.dumps({"cluster": CLUSTER, "task": {"index": 1}}), "task type must be set"),
        (json.dumps({"cluster": CLUSTER, "task": {"type": "worker"}}), "task index must be set"),
        (json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 9}}), "9 is not a valid task_id"),
        (json.dumps({"cluster": CLUSTER, "task": {"type": "cook", "index": 0}}), "cook is not a valid task_type"),
        ('{"task": {"type": "ps"}}', "task type must be WORKER"),
        ('{"task": {"type": "evaluator"}}', "task type must be WORKER"),
        ('{"task": {"type": "worker", "index": 3}}', "task index must be 0"),
        (json.dumps({"cluster": MASTERED | {"chief": ["a:1"]}, "task": {"type": "chief"}}), "`chief` is not supported"),
        (json.dumps({"cluster": MASTERED, "task": {"type": "evaluator", "index": 0}}), "`evaluator` is not supported"),
    ],
)
def test_a_wrong_tf_config_is_reported(monkeypatch: pytest.MonkeyPatch, text: str, match: str) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=match):
        RunConfig()


def test_tf_config_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    as_task(monkeypatch, "worker", 1)
    config = RunConfig(model_dir="m")
    assert (config.task_type, config.task_id, config.master) == ("worker", 1, "grpc://host4:2222")
    assert (config.num_ps_replicas, config.num_worker_replicas, config.global_id_in_cluster) == (2, 3, 2)
    assert not config.is_chief
    as_task(monkeypatch, "evaluator", 0)
    found = RunConfig()
    assert not found.is_chief and not found.cluster_spec.as_dict() and found.master == ""


@pytest.mark.parametrize(
    ("cluster", "task", "filters"),
    [
        (CLUSTER, "chief", ["/job:ps", "/job:chief"]),
        (MASTERED, "master", ["/job:ps", "/job:master"]),
        (CLUSTER, "worker", ["/job:ps", "/job:worker/task:0"]),
        (CLUSTER, "ps", ["/job:ps", "/job:worker", "/job:chief", "/job:master"]),
    ],
)
def test_a_task_sees_the_parameter_servers_and_itself(
    monkeypatch: pytest.MonkeyPatch, cluster: dict[str, Any], task: str, filters: list[str]
) -> None:
    """A worker that is missing does not stop the chief."""
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}}))
    assert list(RunConfig().session_config.device_filters) == filters
    own = tf1.ConfigProto(log_device_placement=True)
    assert RunConfig(session_config=own).session_config == own


def test_without_a_cluster_there_are_no_device_filters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert RunConfig().session_config is None
    as_task(monkeypatch, "evaluator", 0)
    assert RunConfig().session_config is None
    found = trainerd.Estimator(lambda features: None, str(tmp_path)).config.session_config
    assert found.allow_soft_placement and not found.device_filters
    rewrites = found.graph_options.rewrite_options
    assert rewrites.meta_optimizer_iterations == rewrites.ONE, "as TensorFlow's"


def test_a_subclass_may_have_properties_of_its_own() -> None:
    """As the RunConfigs of programs with another launcher."""

    class Mine(RunConfig):
        @property
        def is_chief(self) -> bool:
            return False

        @property
        def model_dir(self) -> str:
            return "mine"

    config = Mine(save_checkpoints_steps=5).replace(save_checkpoints_steps=6)
    assert (config.is_chief, config.model_dir, config.save_checkpoints_steps) == (False, "mine", 6)
    with pytest.raises(AttributeError, match="use `replace"):
        RunConfig().tf_random_seed = 3


def test_settings_are_replaced() -> None:
    config = RunConfig(save_checkpoints_steps=5)
    assert config.save_checkpoints_secs is None
    by_time = config.replace(save_checkpoints_secs=9, model_dir="m")
    assert (by_time.save_checkpoints_secs, by_time.save_checkpoints_steps, by_time.model_dir) == (9, None, "m")
    assert config.save_checkpoints_steps == 5
    with pytest.raises(ValueError, match="cannot be both set"):
        config.replace(save_checkpoints_secs=1, save_checkpoints_steps=1)
    with pytest.raises(ValueError, match="Replacing master is not supported"):
        config.replace(master="m")
    with pytest.raises(ValueError, match="keep_checkpoint_max should be >= 0"):
        RunConfig(keep_checkpoint_max=-1)
    with pytest.raises(ValueError, match="device_fn must be callable with exactly one argument"):
        RunConfig(device_fn=lambda one, other: None)  # type: ignore[arg-type,misc]
    with pytest.raises(ValueError, match="experimental_max_worker_delay_secs must be an integer"):
        RunConfig(experimental_max_worker_delay_secs=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="train_distribute is not supported"):
        RunConfig(train_distribute="strategy")
