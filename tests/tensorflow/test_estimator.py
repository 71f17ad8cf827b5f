"""trainerd.Estimator: its methods, on a small model, with what TensorFlow's did in each case."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import events
from tests.tensorflow.lines import X, Y, endless, make, model_fn, serving_input, step_of, value, whole
from tests.tensorflow.noting import instances
from trainerd.checkpoints import manifest
from trainerd.compat import estimator as names
from trainerd.compat.estimator.missing import INSTEAD
from trainerd.errors import DataError
from trainerd.job.user_code import job_traceback
from trainerd.loop.flag import Request
from trainerd.loop.minima.minima import Minima
from trainerd.loop.outcome import Paused
from trainerd.programs.experiment.early_stopping import read_eval_metrics
from trainerd.run.boundary import Boundary
from trainerd.rundir.paths import RunDirectory

tf1 = tf.compat.v1


# ---------------------------------------------------------------------- training


def test_training_evaluation_prediction_and_export(tmp_path: Path) -> None:
    estimator = make(tmp_path)
    assert estimator.train(endless, max_steps=30) is estimator
    assert estimator.latest_checkpoint().endswith("model.ckpt-30")
    assert estimator.get_variable_names() == ["a", "b", "global_step"]
    found = estimator.evaluate(whole)
    assert set(found) == {"loss", "error", "global_step"} and found["global_step"] == 30
    curves = read_eval_metrics(estimator.eval_dir())
    assert curves[30]["loss"] == pytest.approx(found["loss"])
    predicted = list(estimator.predict(whole))
    assert len(predicted) == 20 and predicted[3]["y"].shape == (1,)
    [batch, *_] = estimator.predict(whole, predict_keys=["y"], yield_single_examples=False)
    assert batch["y"].shape == (5, 1)
    folder = Path(estimator.export_saved_model(tmp_path / "export", serving_input).decode())
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](x=tf.constant(X[3:4]))
    assert served["y"].numpy()[0] == predicted[3]["y"]
    assert step_of(folder) == 30
    with pytest.raises(ValueError, match=r"assets_extra: .*none, the source of 'words\.txt'"):
        estimator.export_saved_model(tmp_path, serving_input, assets_extra={"words.txt": str(tmp_path / "none")})


def test_it_resumes_exactly(tmp_path: Path) -> None:
    make(tmp_path / "whole").train(endless, max_steps=47)
    for last in (13, 30, 47):
        make(tmp_path / "parts").train(endless, max_steps=last)
    assert value(make(tmp_path / "whole")) == value(make(tmp_path / "parts"))


def test_an_evaluation_between_does_not_move_the_input(tmp_path: Path) -> None:
    """What users of tf.estimator complained of most."""
    make(tmp_path / "alone").train(endless, max_steps=40)
    estimator = make(tmp_path / "beside")
    seen = []

    class Evaluate(tf1.train.CheckpointSaverListener):  # type: ignore[misc,name-defined]
        """Evaluates on the input of the training."""

        def after_save(self, session: Any, global_step_value: int) -> None:
            seen.append(estimator.evaluate(endless, steps=3)["global_step"])

    estimator.train(endless, max_steps=40, saving_listeners=[Evaluate()])
    assert seen == [0, 10, 20, 30, 40] and value(estimator) == value(make(tmp_path / "alone"))


def test_steps_count_from_where_it_is_and_max_steps_does_not(tmp_path: Path) -> None:
    estimator = make(tmp_path)
    estimator.train(endless, steps=5).train(endless, steps=7)
    assert estimator.latest_checkpoint().endswith("-12")
    estimator.train(endless, max_steps=12)
    assert estimator.latest_checkpoint().endswith("-12")
    for wrong, match in [
        ({"steps": 1, "max_steps": 1}, "Can not provide both steps and max_steps."),
        ({"steps": 0}, "Must specify steps > 0, given: 0"),
        ({"max_steps": -1}, "Must specify max_steps > 0, given: -1"),
    ]:
        with pytest.raises(ValueError, match=match):
            estimator.train(endless, **wrong)


def test_the_end_of_the_input_is_the_end(tmp_path: Path) -> None:
    estimator = make(tmp_path)
    estimator.train(whole, max_steps=100)
    assert estimator.latest_checkpoint().endswith("-4")
    with pytest.raises(ValueError, match="gives no batch"):
        estimator.evaluate(lambda: whole().take(0))
    with pytest.raises(ValueError, match=r"made no steps\. Perhaps input is empty or misspecified: .* gives no batch"):
        make(tmp_path / "another").train(lambda: whole().take(0), max_steps=100)


def test_one_session_over_several_calls(tmp_path: Path) -> None:
    estimator, built = make(tmp_path), []

    def input_fn() -> tf.data.Dataset:
        built.append(1)
        return endless()

    estimator.keep_open(True)
    for _ in range(3):
        estimator.train(input_fn, steps=7)
        assert estimator.evaluate(whole)["global_step"] % 7 == 0
    estimator.keep_open(False)
    assert len(built) == 1
    make(tmp_path / "whole").train(endless, max_steps=21)
    assert value(estimator) == value(make(tmp_path / "whole"))


def test_listeners_hold_what_they_did_before_the_save(tmp_path: Path) -> None:
    calls: list[Any] = []

    class Listener(tf1.train.CheckpointSaverListener):  # type: ignore[misc,name-defined]
        """Marks each checkpoint."""

        def begin(self) -> None:
            self.mark = tf1.get_variable("mark", initializer=0.0)
            self.fed = tf1.placeholder(tf.float32, [])
            self.op = self.mark.assign(self.fed)
            calls.append("begin")

        def before_save(self, session: Any, global_step_value: int) -> None:
            session.run(self.op, {self.fed: global_step_value + 0.5})
            calls.append(("before", global_step_value))

        def after_save(self, session: Any, global_step_value: int) -> Any:
            calls.append(("after", global_step_value))
            found = tf.train.load_variable(str(tmp_path / f"model.ckpt-{global_step_value}"), "mark")
            assert found == global_step_value + 0.5
            return global_step_value == 20

        def end(self, session: Any, global_step_value: int) -> None:
            calls.append(("end", global_step_value))

    make(tmp_path).train(endless, max_steps=100, saving_listeners=[Listener()])
    pairs = [call for step in (0, 10, 20) for call in (("before", step), ("after", step))]
    assert calls == ["begin", *pairs, ("end", 20)], "after_save has asked for the end"
    with pytest.raises(ValueError, match="There should be a CheckpointSaverHook"):
        make(tmp_path / "never", every=0).train(endless, max_steps=1, saving_listeners=[Listener()])


def test_a_loss_that_is_no_number_ends_it(tmp_path: Path) -> None:
    estimator = trainerd.Estimator(model_fn, str(tmp_path), params={"rate": 1e30})
    with pytest.raises(tf1.train.NanLossDuringTrainingError):
        estimator.train(endless, max_steps=30)
    assert np.isfinite(value(estimator)), "nothing was saved after that"


def test_the_state_at_a_minimum_of_the_loss_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The learning rate of a model that has learned is raised: its loss turns up."""

    def turning(features: Any, labels: Any, mode: str) -> Any:
        a = tf1.get_variable("a", initializer=0.0)
        step = tf1.train.get_global_step()
        loss = tf.where(step < 600, 3.0 - tf.cast(step, tf.float32) / 300, tf.cast(step, tf.float32) / 600) + 0 * a
        train_op = tf.group(a.assign_add(1.0), step.assign_add(1))
        return trainerd.EstimatorSpec(mode, loss=tf.reshape(loss, []), train_op=train_op)

    class Looks(tf1.train.SessionRunHook):  # type: ignore[misc,name-defined]
        """Has the end of each run be a boundary that is looked at, whatever snapshots cost on this machine."""

        def after_run(self, run_context: Any, run_values: Any) -> None:
            minima[-1].next_at = 0.0
            boundaries[-1].flag.raise_for(Request.TICK)

    minima, boundaries = instances(monkeypatch, Minima), instances(monkeypatch, Boundary)
    estimator = make(tmp_path, turning, every=50)
    estimator.train(endless, max_steps=1500, hooks=[Looks()])
    rundir = RunDirectory(tmp_path)
    kept = [step for step in rundir.steps() if manifest.read(rundir.manifest(step)).minimum is not None]
    assert kept and all(400 <= step <= 1000 for step in kept), "the loss is smoothed over a hundred steps"


def test_what_saves_nothing_ends_too(tmp_path: Path) -> None:
    config = trainerd.RunConfig(str(tmp_path), save_checkpoints_steps=None, save_checkpoints_secs=None)
    estimator = trainerd.Estimator(model_fn, config=config, params={"rate": 0.1})
    estimator.train(endless, steps=5).train(endless, max_steps=7)
    assert estimator.latest_checkpoint() is None


def test_a_local_init_op_of_its_own_keeps_nothing_from_being_initialized(tmp_path: Path) -> None:
    def fn(features: Any, labels: Any, mode: str) -> Any:
        spec = model_fn(features, labels, mode, {"rate": 0.1})
        return spec._replace(scaffold=tf1.train.Scaffold(local_init_op=tf1.local_variables_initializer()))

    estimator = make(tmp_path, fn)
    estimator.train(endless, max_steps=20)
    first = estimator.evaluate(whole)
    assert estimator.evaluate(whole) == first and len(list(estimator.predict(whole))) == 20


def test_metrics_may_be_structures_arrays_and_summaries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fn(features: Any, labels: Any, mode: str) -> Any:
        spec = model_fn(features, labels, mode, {"rate": 0.1})
        if mode != trainerd.ModeKeys.EVAL:
            return spec
        (one, update_one), (two, update_two) = tf1.metrics.mean(labels), tf1.metrics.mean(features["x"])
        image = tf1.summary.image("image", tf.zeros([1, 2, 2, 1]), collections=[])
        others = {
            "both": ((one, {"two": two}), tf.group(update_one, update_two)),
            "left": (image, tf.no_op()),
            "right": (tf.identity(image), tf.no_op()),
            "text": (tf.constant("no summary"), tf.no_op()),
            "confusion": (tf.ones([2, 2]), tf.no_op()),
        }
        return spec._replace(eval_metric_ops=spec.eval_metric_ops | others)

    estimator = make(tmp_path, fn)
    with caplog.at_level("INFO", logger="tensorflow"):
        found = estimator.train(endless, steps=2).evaluate(whole)
    (line,) = (line for line in caplog.messages if line.startswith("Saving dict for global step 2: "))
    assert f"global_step = 2, loss = {found['loss']}" in line and "left" not in line, "where programs read the metrics"
    assert found["both"] == (pytest.approx(Y.mean()), {"two": pytest.approx(X.mean())})
    values = [value for event in events(Path(estimator.eval_dir())) for value in event.summary.value]
    assert {value.tag for value in values} == {
        *("loss", "error", "confusion", "left/0", "right/0", "checkpoint_path")
    }, "as TensorFlow names them"
    (path,) = (value.tensor for value in values if value.tag == "checkpoint_path")
    assert tf.make_ndarray(path).item().decode() == estimator.latest_checkpoint()
    (confusion,) = (value.tensor for value in values if value.tag == "confusion")
    assert tf.make_ndarray(confusion).tolist() == [[1, 1], [1, 1]]


def test_metrics_are_added_to_those_of_an_estimator(tmp_path: Path) -> None:
    def metric_fn(features: Any, labels: Any) -> Any:
        return {"x": tf1.metrics.mean(features["x"]), "y": tf1.metrics.mean(labels)}

    first = make(tmp_path).train(endless, steps=2)
    found = names.add_metrics(first, metric_fn).evaluate(whole)
    assert found["x"] == pytest.approx(X.mean()) and {"error", "loss", "y"} < set(found)
    with pytest.raises(ValueError, match="following not expected args"):
        names.add_metrics(first, lambda features, other: {})


def test_a_logit_fn_is_called_with_what_it_takes() -> None:
    with tf.Graph().as_default():
        features = {"x": tf.zeros([2])}
        assert names.experimental.call_logit_fn(lambda features: features, features, "train", {}, None) == features
        with pytest.raises(ValueError, match="logit_fn should return a Tensor or a dictionary"):
            names.experimental.call_logit_fn(lambda features, params: [params], features, "train", {}, None)


def test_a_name_of_tf_estimator_that_is_not_here_says_what_to_use() -> None:
    for name, cure in INSTEAD.items():
        of = names
        *folder, last = name.split(".")
        for part in folder:
            of = getattr(of, part)
        with pytest.raises(AttributeError) as raised:
            getattr(of, last)
        assert f"tf.estimator.{name}: {cure}" in str(raised.value)
    assert not hasattr(names, "Nothing") and not hasattr(names.export, "Nothing")


def test_evaluations_are_the_same_whichever_came_before(tmp_path: Path) -> None:
    """With data that are shuffled too, of which each evaluation reads the first."""
    estimator = make(tmp_path)
    estimator.train(endless, max_steps=20)
    for input_fn in (whole, lambda: whole().shuffle(4, seed=2)):
        found = [estimator.evaluate(input_fn, steps=2) for _ in range(3)]
        assert found[0] == found[1] == found[2] == make(tmp_path).evaluate(input_fn, steps=2)


def test_an_evaluation_follows_one_whose_checkpoint_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = make(tmp_path)
    estimator.train(endless, max_steps=20)
    for path in tmp_path.glob("model.ckpt-20*"):
        shutil.copy(path, path.with_name(f"kept-{path.name}"))

    def delete(prefix: str) -> None:
        for path in tmp_path.glob("model.ckpt-20*"):
            path.unlink()

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="not a valid checkpoint"):
        patch.setattr("trainerd.programs.estimator.evaluation.graph.require_fit", delete)
        estimator.evaluate(whole)
    for path in tmp_path.glob("kept-*"):
        path.rename(path.with_name(path.name.removeprefix("kept-")))
    assert estimator.evaluate(whole) == make(tmp_path).evaluate(whole)


def test_another_input_restarts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    estimator = make(tmp_path)
    estimator.train(endless, steps=15)
    estimator.train(lambda: whole().map(lambda x, y: (x, y)).repeat().prefetch(1), steps=5)
    assert estimator.latest_checkpoint().endswith("-20") and "it restarts" in caplog.text


def test_another_input_function_begins_at_its_beginning(tmp_path: Path) -> None:
    seen: list[float] = []

    class Sees(tf1.train.SessionRunHook):  # type: ignore[misc,name-defined]
        """The first number of each batch."""

        def before_run(self, run_context: Any) -> Any:
            graph = tf1.get_default_graph()
            return tf1.train.SessionRunArgs(graph.get_tensor_by_name("IteratorGetNext:0"))

        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(float(run_values.results[0, 0]))

    def counting(start: int) -> Callable[[], Any]:
        x = np.arange(start, start + 10, dtype="float32").reshape(10, 1)
        return lambda: tf.data.Dataset.from_tensor_slices((x, x)).batch(1).repeat().prefetch(2)

    estimator = make(tmp_path, lambda features, labels, mode: model_fn(features, labels, mode, {"rate": 1e-6}))
    first, second = counting(0), counting(100)
    for input_fn in (first, first, second):
        estimator.train(input_fn, steps=3, hooks=[Sees()])
    assert seen == [0, 1, 2, 3, 4, 5, 100, 101, 102]


def test_a_saver_hook_of_the_program_saves_as_tensorflow_does(tmp_path: Path) -> None:
    steps: list[int] = []

    class Listener(tf1.train.CheckpointSaverListener):  # type: ignore[misc,name-defined]
        """Notes."""

        def after_save(self, session: Any, global_step_value: int) -> None:
            steps.append(int(global_step_value))

    hook = tf1.train.CheckpointSaverHook(str(tmp_path), save_steps=7, listeners=[Listener()])
    make(tmp_path, every=1000).train(endless, max_steps=15, hooks=[hook])
    assert steps[0] == 0 and steps[-1] == 15 and make(tmp_path).latest_checkpoint().endswith("-15")


def test_each_graph_has_its_own_params(tmp_path: Path) -> None:
    seen: list[int] = []

    def fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        params["calls"] += 1
        seen.append(params["calls"])
        return model_fn(features, labels, mode, {"rate": 0.1})

    estimator = trainerd.Estimator(fn, str(tmp_path), params={"calls": 0})
    estimator.train(endless, steps=2).evaluate(whole)
    assert seen == [1, 1]


def test_a_classifier_is_served_raw_features_too(tmp_path: Path) -> None:
    def fn(features: Any, labels: Any, mode: str) -> Any:
        spec = model_fn(features, labels, mode, {"rate": 0.1})
        if mode != trainerd.ModeKeys.PREDICT:
            return spec
        scores = names.export.ClassificationOutput(scores=spec.predictions["y"])
        value = names.export.RegressionOutput(spec.predictions["y"])
        return spec._replace(export_outputs={tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: scores, "value": value})

    estimator = make(tmp_path / "run", fn)
    estimator.train(endless, max_steps=5)
    raw = tf.saved_model.load(estimator.export_saved_model(tmp_path / "raw", serving_input).decode()).signatures
    assert {name: list(each.structured_outputs) for name, each in raw.items()} == {
        "serving_default": ["scores"],
        "value": ["outputs"],
    }
    parsing = names.export.build_parsing_serving_input_receiver_fn({"x": tf.io.FixedLenFeature([1], tf.float32)})
    parsed = tf.saved_model.load(estimator.export_saved_model(tmp_path / "parsed", parsing).decode()).signatures
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.append(0.5)
    found = parsed["serving_default"](inputs=tf.constant([example.SerializeToString()]))["scores"]
    assert found.numpy() == raw["serving_default"](x=tf.constant([[0.5]]))["scores"].numpy()

    def single() -> Any:
        fed = tf1.placeholder(tf.float32, [None, 1])
        return trainerd.ServingInputReceiver({"x": fed}, fed, {"other": fed})

    one = tf.saved_model.load(estimator.export_saved_model(tmp_path / "one", single).decode()).signatures
    assert {tuple(each.structured_input_signature[1]) for each in one.values()} == {("input",)}, "as TensorFlow's"


def test_a_raw_feature_has_its_shape_but_the_batch() -> None:
    with tf.Graph().as_default():
        features = {
            "row": tf1.placeholder(tf.float32, [7, 3]),
            "scalar": tf1.placeholder(tf.int32, []),
            "any": tf1.placeholder(tf.int32, None),
        }
        fed = trainerd.build_raw_serving_input_receiver_fn(features)().features
        shapes = {name: tensor.shape for name, tensor in fed.items()}
    assert shapes["row"].as_list() == [None, 3] and shapes["scalar"].rank == 0 and shapes["any"].rank is None


# ---------------------------------------------------------------------- what is wrong


def spec_of(**fields: Any) -> Callable[..., Any]:
    def fn(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_mean(labels)
        return trainerd.EstimatorSpec(mode, **{"loss": loss, "train_op": tf.no_op()} | fields)

    return fn


@pytest.mark.parametrize(
    ("fn", "error", "match"),
    [
        (spec_of(loss=None), ValueError, "Missing loss."),
        (spec_of(train_op=None), ValueError, "Missing train_op."),
        (spec_of(loss=3.0), TypeError, "loss must be Tensor"),
        (spec_of(training_hooks=["hook"]), TypeError, "All hooks must be SessionRunHook instances"),
        (spec_of(eval_metric_ops={"m": 1}), TypeError, r"must be \(metric_value, update_op\) tuples"),
        (spec_of(scaffold="s"), TypeError, "scaffold must be tf.train.Scaffold"),
        (lambda features, labels: None, ValueError, "model_fn should return an EstimatorSpec."),
        (lambda features: None, ValueError, "model_fn does not take labels, but input_fn returns labels."),
    ],
)
def test_a_wrong_model_fn(tmp_path: Path, fn: Callable[..., Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make(tmp_path, fn).train(whole, max_steps=1)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must include features argument"):
        make(tmp_path, lambda labels: None)
    with pytest.raises(ValueError, match="does not include params argument"):
        trainerd.Estimator(lambda features: None, str(tmp_path), params={"rate": 1})
    with pytest.raises(ValueError, match="with different values"):
        trainerd.Estimator(lambda features: None, "other", trainerd.RunConfig(str(tmp_path)))
    estimator = make(tmp_path)
    with pytest.raises(TypeError, match="must be callable"):
        estimator.train("input", max_steps=1)
    with pytest.raises(TypeError, match="Hooks must be a SessionRunHook"):
        estimator.train(whole, hooks=["hook"], max_steps=1)
    with pytest.raises(ValueError, match="there is no checkpoint"):
        estimator.evaluate(whole, checkpoint_path=str(tmp_path / "none-3"))
    with pytest.raises(ValueError, match="config must be an instance of `RunConfig`"):
        trainerd.Estimator(None, config="config")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Could not find trained model in model_dir"):
        estimator.get_variable_names()
    with pytest.raises(ValueError, match="Couldn't find trained model"):
        estimator.export_saved_model(tmp_path / "export", serving_input)
    assert not (tmp_path / "export").exists()


def test_an_evaluation_of_another_shape_names_both(tmp_path: Path) -> None:
    def wide(features: Any, labels: Any, mode: str) -> Any:
        w = tf1.get_variable("w", [features.shape[1], 1])
        loss = tf.reduce_mean((tf.matmul(features, w) - labels) ** 2)
        step = tf1.train.get_global_step()
        train_op = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        return trainerd.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_of(width: int) -> Callable[[], Any]:
        return lambda: tf.data.Dataset.from_tensors((tf.ones([2, width]), tf.ones([2, 1])))

    estimator = make(tmp_path, wide)
    estimator.train(input_of(3), max_steps=1)
    with pytest.raises(ValueError, match=r"w has the shape \[3, 1\] in .*, and \[4, 1\] here: does this input"):
        estimator.evaluate(input_of(4))

    def of_three(features: Any, labels: Any, mode: str) -> Any:
        return wide(tf.ensure_shape(features, [None, 3]), labels, mode)

    other = make(tmp_path / "other", of_three)
    other.train(input_of(3), max_steps=1)
    with pytest.raises(ValueError) as failed:
        other.evaluate(input_of(4))
    assert "over the input function of the evaluation" in job_traceback(failed.value)


def test_no_damaged_checkpoint_is_read(tmp_path: Path) -> None:
    estimator = make(tmp_path)
    estimator.train(endless, max_steps=20)
    data = tmp_path / "model.ckpt-20.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    assert estimator.latest_checkpoint().endswith("-10")
    assert estimator.evaluate(whole)["global_step"] == 10
    with pytest.raises(DataError, match="cannot be read"):
        estimator.evaluate(whole, checkpoint_path=str(tmp_path / "model.ckpt-20"))
    with pytest.raises(DataError, match="there is no checkpoint"):
        estimator.evaluate(whole, checkpoint_path=str(tmp_path / "model.ckpt-99"))


# ---------------------------------------------------------------------- pauses, and what it begins with


def test_a_pause_in_predictions_is_no_end_of_them(tmp_path: Path) -> None:
    estimator = make(tmp_path)
    estimator.train(endless, max_steps=1)

    class Pause(tf1.train.SessionRunHook):  # type: ignore[misc,name-defined]
        """A signal."""

        def after_run(self, run_context: Any, run_values: Any) -> None:
            assert tf1.train.get_global_step() is not None
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Paused):
        for _ in estimator.predict(endless, hooks=[Pause()]):  # the input that ends may end before the signal is heard
            continue


def test_a_pause_leaves_train_as_an_exit_with_0(tmp_path: Path) -> None:
    class Pause(tf1.train.SessionRunHook):  # type: ignore[misc,name-defined]
        """Asks for a pause after some steps."""

        runs = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.runs += 1
            if self.runs == 7:
                (tmp_path / "pause").touch()

    with pytest.raises(Paused) as raised:
        make(tmp_path, every=1000).train(endless, hooks=[Pause()])
    assert raised.value.code == 0
    paused = int(str(make(tmp_path).latest_checkpoint()).rpartition("-")[2])
    make(tmp_path).train(endless, max_steps=paused + 9)
    make(tmp_path / "whole").train(endless, max_steps=paused + 9)
    assert value(make(tmp_path)) == value(make(tmp_path / "whole"))


def test_warm_start_begins_with_what_another_has_learned(tmp_path: Path) -> None:
    make(tmp_path / "first").train(endless, max_steps=50)
    exported = make(tmp_path / "first").export_saved_model(tmp_path / "export", serving_input)
    for number, source in enumerate([str(tmp_path / "first"), exported]):
        second = make(tmp_path / f"second-{number}", warm_start_from=source)
        second.train(endless, max_steps=1)
        assert abs(value(second) - value(make(tmp_path / "first"))) < 0.1 < value(second)
        new = make(tmp_path / f"new-{number}", warm_start_from=source)
        assert step_of(Path(new.export_saved_model(tmp_path / "of-new", serving_input).decode())) in (50, None)
