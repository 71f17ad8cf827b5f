"""What an Estimator exports and when it stops: specs, exporters, strategies, stop hooks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.lines import X, Y, endless, make, model_fn, serving_input, step_of, whole
from tests.tensorflow.noting import as_task
from trainerd.compat import estimator as names
from trainerd.errors import StorageError
from trainerd.job.user_code import job_traceback
from trainerd.programs.estimator.checkpoints import step_of as step_of_checkpoint
from trainerd.programs.estimator.export.saved_model import exports_in, write_below
from trainerd.programs.experiment.early_stopping import read_eval_metrics
from trainerd.programs.experiment.export.exporters import best_in, keep_best
from trainerd.rundir.paths import RunDirectory

tf1 = tf.compat.v1


def trained(folder: Path, exporters: Any = (), hooks: Any = (), last: int = 60, **more: Any) -> Any:
    estimator = make(folder)
    train_spec = trainerd.TrainSpec(endless, max_steps=last, hooks=hooks(estimator) if callable(hooks) else hooks)
    options = {"throttle_secs": 0, "steps": None} | more
    return estimator, trainerd.train_and_evaluate(
        estimator, train_spec, trainerd.EvalSpec(whole, exporters=exporters, **options)
    )


def test_exporters(tmp_path: Path) -> None:
    def is_better(best_eval_result: Any, current_eval_result: Any) -> bool:
        return int(current_eval_result["global_step"]) in (30, 40)

    exporters = [
        trainerd.LatestExporter("latest", serving_input, exports_to_keep=2),
        trainerd.FinalExporter("final", serving_input),
        trainerd.BestExporter("best", serving_input, compare_fn=is_better),
    ]
    _, (metrics, exports) = trained(tmp_path, exporters)
    assert metrics["global_step"] == 60 and [bool(each) for each in exports] == [True, True, False]
    made = {
        name: [step_of(path) for path in exports_in(tmp_path / "export" / name)] for name in ("latest", "final", "best")
    }
    assert made == {"latest": [50, 60], "final": [60], "best": [10, 30, 40]}
    best = best_in(tmp_path / "export" / "best")
    assert best is not None and best["global_step"] == 40
    assert all(path.is_dir() for path in (tmp_path / "export").glob("*/*")), "the last name is the newest export"
    _, again = trained(tmp_path, exporters)
    assert again[0]["loss"] == pytest.approx(metrics["loss"]) and again[1] == [], "it was all done"
    assert set(read_eval_metrics(str(tmp_path / "eval"))) == {10, 20, 30, 40, 50, 60}


def test_what_an_older_version_kept_as_the_best_is_read(tmp_path: Path) -> None:
    (tmp_path / "best.json").write_text('{"loss": 0.5}')
    assert best_in(tmp_path) == {"loss": 0.5}
    keep_best(tmp_path, {"loss": 0.4})
    assert best_in(tmp_path) == {"loss": 0.4} and not (tmp_path / "best.json").exists()


@pytest.mark.parametrize("task", ["chief", "master"])
def test_the_only_task_of_a_cluster_trains_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    """Cloud services set this for a job on one machine."""
    cluster = {"cluster": {task: ["localhost:2222"]}, "task": {"type": task, "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    estimator, found = trained(tmp_path, last=20)
    assert found == (None, []), "as of any task of a cluster"
    assert step_of_checkpoint(estimator.latest_checkpoint()) == 20
    assert list(read_eval_metrics(estimator.eval_dir())) == ([10, 20] if task == "master" else [])


def test_a_second_evaluator_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_task(monkeypatch, "evaluator", 1)
    with pytest.raises(ValueError, match="only be one `evaluator` task"):
        trained(tmp_path)


def test_throttled_by_steps_and_the_last_in_any_case(tmp_path: Path) -> None:
    trained(tmp_path, last=65, throttle_steps=25, name="rarely")
    assert list(read_eval_metrics(str(tmp_path / "eval_rarely"))) == [10, 40, 65]


def test_an_exporter_that_raises_leaves_nothing_and_the_next_start_exports(tmp_path: Path) -> None:
    def fails() -> Any:
        raise ValueError("no input")

    with pytest.raises(ValueError, match="no input") as failed:
        trained(tmp_path, trainerd.LatestExporter("latest", fails))
    assert "in the export 'latest'" in job_traceback(failed.value)
    assert exports_in(tmp_path / "export" / "latest") == []
    trained(tmp_path, trainerd.LatestExporter("latest", serving_input, exports_to_keep=None))
    assert [step_of(path) for path in exports_in(tmp_path / "export" / "latest")] == [10, 20, 30, 40, 50, 60]
    assert not list((tmp_path / "export" / "latest").glob(".*"))


def test_a_run_that_went_back_evaluates_and_exports_what_it_trains_again(tmp_path: Path) -> None:
    exporter = trainerd.LatestExporter("latest", serving_input, exports_to_keep=None)
    trained(tmp_path, exporter, last=40)
    rundir = RunDirectory(tmp_path)
    for step in (30, 40):  # as a rollback moves them away
        for path in tmp_path.glob(f"model.ckpt-{step}.*"):
            path.unlink()
    rundir.checkpoint_state.unlink()
    estimator = trainerd.Estimator(
        model_fn, config=trainerd.RunConfig(str(tmp_path), save_checkpoints_steps=10), params={"rate": 0.05}
    )
    spec = trainerd.EvalSpec(whole, steps=None, exporters=exporter, throttle_secs=0)
    trainerd.train_and_evaluate(estimator, trainerd.TrainSpec(endless, max_steps=40), spec)
    assert [step_of(path) for path in exports_in(tmp_path / "export" / "latest")] == [10, 20, 30, 40, 30, 40]
    assert rundir.evaluations(30).exists() and rundir.evaluations(40).exists()


def test_a_torn_event_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    trained(tmp_path, last=30)
    [path] = (tmp_path / "eval").glob("*.tfevents.*")
    path.write_bytes(path.read_bytes()[:-7])
    assert list(read_eval_metrics(str(tmp_path / "eval")))[:2] == [10, 20]


def test_an_experiment_that_saves_nothing_evaluates_at_its_end(tmp_path: Path) -> None:
    config = trainerd.RunConfig(str(tmp_path), save_checkpoints_steps=None, save_checkpoints_secs=None)
    estimator = trainerd.Estimator(model_fn, config=config, params={"rate": 0.1})
    metrics, _ = trainerd.Experiment(estimator, endless, whole, train_steps=5, eval_steps=None).train_and_evaluate()
    assert metrics["global_step"] == 0, "there is no checkpoint: it is a new model"


def test_stop_hooks(tmp_path: Path) -> None:
    def stop(estimator: Any) -> Any:
        return [
            trainerd.stop_if_lower_hook(estimator, "loss", 1.0, min_steps=15, run_every_secs=None, run_every_steps=5)
        ]

    estimator, (metrics, _) = trained(tmp_path, hooks=stop)
    results = read_eval_metrics(estimator.eval_dir())
    first = next(step for step, each in results.items() if step >= 15 and each["loss"] < 1.0)
    assert metrics["global_step"] == first + 5
    with pytest.raises(ValueError, match="Only one of"):
        trainerd.make_early_stopping_hook(estimator, lambda: True, run_every_secs=1, run_every_steps=1)
    with pytest.raises(TypeError, match="must have type"):
        trainerd.make_early_stopping_hook("estimator", lambda: True)


@pytest.mark.parametrize(
    ("hook", "argument", "stops"),
    [
        ("stop_if_no_decrease_hook", {"max_steps_without_decrease": 10}, False),
        ("stop_if_no_increase_hook", {"max_steps_without_increase": 20}, True),
        ("stop_if_higher_hook", {"threshold": 100.0}, False),
    ],
)
def test_stop_hooks_of_improvement(tmp_path: Path, hook: str, argument: dict[str, Any], stops: bool) -> None:
    make_hook = getattr(names.experimental, hook)
    _, (metrics, _) = trained(
        tmp_path,
        hooks=lambda estimator: [make_hook(estimator, "loss", run_every_secs=None, run_every_steps=10, **argument)],
    )
    assert (metrics["global_step"] < 60) == stops


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        ({"steps": 0}, ValueError, "Must specify steps > 0"),
        ({"name": 3}, TypeError, "`name` must be string"),
        ({"throttle_secs": -1}, ValueError, "Must specify throttle_secs >= 0"),
        ({"throttle_steps": -1}, ValueError, "Must specify throttle_steps >= 0"),
        ({"start_delay_secs": -1}, ValueError, "Must specify start_delay_secs >= 0"),
        ({"hooks": ["hook"]}, TypeError, "All hooks must be `SessionRunHook` instances"),
        ({"exporters": "exporter"}, TypeError, "must be an Exporter"),
        ({"exporters": [trainerd.FinalExporter("a", serving_input)] * 2}, ValueError, "must have unique names"),
        ({"exporters": trainerd.FinalExporter("", serving_input)}, ValueError, "cannot have a name that is `None`"),
    ],
)
def test_wrong_specs(wrong: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        trainerd.EvalSpec(whole, **wrong)
    with pytest.raises(ValueError, match="Must specify max_steps > 0"):
        trainerd.TrainSpec(whole, max_steps=0)
    with pytest.raises(TypeError, match="must be callable"):
        trainerd.TrainSpec("input")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="All saving_listeners must be `CheckpointSaverListener` instances"):
        trainerd.TrainSpec(whole, saving_listeners=["listener"])
    with pytest.raises(TypeError, match="`estimator` must have type"):
        trainerd.train_and_evaluate(object(), trainerd.TrainSpec(whole), trainerd.EvalSpec(whole))


# ---------------------------------------------------------------------- strategies


def test_strategies_that_parse_and_that_resume(tmp_path: Path) -> None:
    estimator = make(tmp_path / "run")
    estimator.train(endless, max_steps=10)
    column = tf1.feature_column.numeric_column("x", shape=(1,))
    parsing = trainerd.make_parsing_export_strategy([column]).export(estimator, str(tmp_path / "parsing"))
    assert "serving_default" in tf.saved_model.load(parsing.decode()).signatures

    def post(exported: bytes, folder: str) -> str:
        shutil.copytree(exported.decode(), Path(folder, "done"))
        return str(Path(folder, "done"))

    extended = trainerd.extend_export_strategy(trainerd.make_export_strategy(serving_input), post, "post")
    prefix, base = estimator.latest_checkpoint(), tmp_path / "post"
    made = extended.export(estimator, str(base), checkpoint_path=prefix)
    assert [path.name for path in base.iterdir()] == ["done"] and step_of(base / "done") == 10
    assert extended.export(estimator, str(base), checkpoint_path=prefix) == made, "it is there already"
    estimator.train(endless, max_steps=20)
    with pytest.raises(ValueError, match="post_export_fn must give each export a name of its own"):
        extended.export(estimator, str(base), checkpoint_path=estimator.latest_checkpoint())


def test_a_day_of_evaluations_takes_few_bytes(tmp_path: Path) -> None:
    estimator = make(tmp_path)
    estimator.train(endless, max_steps=1)
    for _ in range(50):
        estimator.evaluate(whole)
    size = sum(path.stat().st_size for path in (tmp_path / "eval").iterdir())
    assert size / 50 * 24 * 3600 < 50e6, "one a second"


def test_a_full_disk_leaves_no_part_of_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = make(tmp_path / "run")
    estimator.train(endless, max_steps=1)

    def full(*arguments: Any) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "variables.data-00000-of-00001; No space left on device")

    monkeypatch.setattr(tf1.saved_model.Builder, "save", full)
    with pytest.raises(StorageError, match="no space left on the device"):
        estimator.export_saved_model(tmp_path / "export", serving_input)
    assert not list((tmp_path / "export").iterdir())


def test_two_exports_at_once_below_one_folder_get_names_of_their_own(tmp_path: Path) -> None:
    stagings, made = [], []

    def write(folder: Path) -> None:
        stagings.append(folder)
        (folder / "graph").write_text("a graph")
        if len(stagings) == 1:
            made.append(write_below(tmp_path, "model.ckpt-7", write))

    made.append(write_below(tmp_path, "model.ckpt-7", write))
    assert exports_in(tmp_path) == made and [step_of(path) for path in made] == [7, 7]
    assert stagings[0].name == stagings[1].name, "the leftovers of one are found by the next, whatever the time"
    assert sorted(tmp_path.iterdir()) == made


def test_a_metric_that_raises_says_what_it_said(tmp_path: Path) -> None:
    def fn(features: Any, labels: Any, mode: str) -> Any:
        spec = model_fn(features, labels, mode, {"rate": 0.1})
        if mode != trainerd.ModeKeys.EVAL:
            return spec
        with tf.control_dependencies([tf.debugging.assert_less(labels, -1.0, message="the labels are wrong")]):
            return spec._replace(eval_metric_ops={"mean": tf1.metrics.mean(labels)})

    estimator = make(tmp_path, fn)
    estimator.train(endless, max_steps=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the labels are wrong"):
        estimator.evaluate(whole)


def test_an_input_of_tensors(tmp_path: Path) -> None:
    estimator = make(tmp_path)
    estimator.train(lambda: ({"x": tf.constant(X)}, tf.constant(Y)), max_steps=5)
    assert estimator.evaluate(lambda: ({"x": tf.constant(X)}, tf.constant(Y)), steps=2)["global_step"] == 5
