"""Hooks around the steps of TensorFlow 2 functions: TensorFlow's names, arguments and meanings."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tensorflow as tf

import trainerd
from tests.tensorflow.graphs import events, saved, state
from tests.tensorflow.noting import instances
from tests.tensorflow.programs import Count, program
from tests.waiting import wait_for
from trainerd import hooks
from trainerd.rundir.state import Phase
from trainerd.sessions.tf2.session import FunctionSessionLink


def monitored(count: Count, folder: Path | None = None, **options: Any) -> Any:
    return trainerd.MonitoredTrainingSession(
        checkpoint=tf.train.Checkpoint(p=count.p), checkpoint_dir=None if folder is None else str(folder), **options
    )


def run(session: Any, step: Any, at_once: bool) -> None:
    """Until it is asked to stop."""
    with session:
        while not session.should_stop():
            session.run(step, steps=10**6) if at_once else session.run(step)


class Notes(hooks.SessionRunHook):  # type: ignore[misc]
    """Notes what it is called for; every step, or when it says."""

    def __init__(self, name: str, seen: list[Any], due_at: Callable[[int], float | None] | None = None) -> None:
        self.name, self.seen = name, seen
        if due_at is not None:
            self.due_at = due_at

    def begin(self) -> None:
        self.seen.append(f"{self.name} begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.seen.append(f"{self.name} created at {session.step}")

    def before_run(self, run_context: Any) -> Any:
        self.seen.append(f"{self.name} before {run_context.session.step}")
        return hooks.SessionRunArgs({"loss": "loss", "p": "p"})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = run_context.session.step
        assert run_values.results["p"] == 2.0 * step
        self.seen.append(f"{self.name} after {step}")

    def end(self, session: Any) -> None:
        self.seen.append(f"{self.name} end at {session.step}")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What TensorFlow's logger said."""
    caplog.set_level(logging.INFO, logger="tensorflow")
    return caplog


# ---------------------------------------------------------------------- order


def test_hooks_are_called_in_their_order_around_each_step() -> None:
    seen: list[str] = []
    count = Count()
    with monitored(count, hooks=[Notes("a", seen), Notes("b", seen)]) as session:
        session.run(count.step)
    assert seen == [
        *("a begin", "b begin", "a created at 0", "b created at 0"),
        *("a before 0", "b before 0", "a after 1", "b after 1"),
        *("a end at 1", "b end at 1"),
    ]


def test_one_that_wants_every_step_gets_every_step_also_of_many(tmp_path: Path) -> None:
    seen: list[str] = []
    count = Count()
    with monitored(count, tmp_path, hooks=[Notes("a", seen)]) as session:
        session.run(count.step, steps=4)
    assert [note for note in seen if "after" in note] == [f"a after {n}" for n in (1, 2, 3, 4)]


def test_one_that_wants_every_nth_leaves_the_loop_in_the_graph_between(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    links = instances(monkeypatch, FunctionSessionLink)
    count, chunks = Count(), []
    often = Notes("n", seen, lambda step: (step // 100 + 1) * 100)
    with monitored(count, hooks=[often]) as session:
        link = links[-1]
        ran = link.ran

        def noted(steps: Any) -> None:
            chunks.append(len(steps.rows))
            ran(steps)

        link.ran = noted
        session.run(count.step, steps=350)
    assert [note for note in seen if "after" in note] == ["n after 100", "n after 200", "n after 300"]
    assert chunks == [100, 100, 100, 50]


def test_what_a_hook_raises_ends_the_run_and_no_hook_is_ended(tmp_path: Path) -> None:
    class Fails(Notes):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            raise KeyError("mine")

    seen: list[str] = []
    count = Count()
    hooked = [Notes("a", seen), Fails("f", seen), Notes("z", seen)]
    with pytest.raises(KeyError), monitored(count, tmp_path, hooks=hooked) as session:
        session.run(count.step)
    assert seen[-1] == "a after 1" and not [note for note in seen if "end" in note]
    assert saved(tmp_path) == [(1, "failure")] and state(tmp_path).phase is Phase.FAILED


def test_a_hook_may_ask_to_stop_and_run_is_then_refused() -> None:
    class Stops(hooks.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_context.session.step == 3:
                run_context.request_stop()

    count = Count()
    with monitored(count, hooks=[Stops()]) as session:
        while not session.should_stop():
            session.run(count.step)
        assert session.step == 3
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            session.run(count.step)
    assert session.should_stop()
    with pytest.raises(RuntimeError, match="Session is already closed"):
        session.run(count.step)
    with pytest.raises(RuntimeError, match="Session is already closed"):
        session.close()


def test_fetches_are_names_variables_and_functions() -> None:
    class Fetches(hooks.SessionRunHook):  # type: ignore[misc]
        def before_run(self, run_context: Any) -> Any:
            return hooks.SessionRunArgs({"name": "loss", "more": [count.p, lambda: count.p + 1.0]})

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.found = run_values.results

    count, hook = Count(), Fetches()
    with monitored(count, hooks=[hook]) as session:
        session.run(count.step)
        assert hook.found == {"name": np.float32(0.5), "more": [2.0, 3.0]}
    with (
        pytest.raises(ValueError, match=r"nothing named 'los', but \['loss', 'p'\]"),
        monitored(count, hooks=[hooks.LoggingTensorHook(["los"], every_n_iter=1)]) as session,
    ):
        session.run(count.step)


def test_run_step_fn_gives_a_session_without_hooks_and_a_way_to_run_with_them() -> None:
    seen: list[str] = []
    count = Count()

    def step_fn(step_context: Any) -> Any:
        before = step_context.session.run(count.p)
        after = step_context.run_with_hooks(count.step)["p"]
        if after >= 6.0:
            step_context.request_stop()
        return before, after

    with monitored(count, hooks=[Notes("a", seen)]) as session:
        assert session.run_step_fn(step_fn) == (0.0, 2.0)
        with pytest.raises(ValueError, match="may either have one `step_context` argument"):
            session.run_step_fn(lambda other: None)
        while not session.should_stop():
            session.run_step_fn(step_fn)
    assert count.p.numpy() == 6.0 and len([note for note in seen if "after" in note]) == 3


# ---------------------------------------------------------------------- each of them


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(("options", "first", "last"), [({"num_steps": 7}, 7, 14), ({"last_step": 9}, 9, 10)])
def test_stop_at_step(tmp_path: Path, at_once: bool, options: dict[str, int], first: int, last: int) -> None:
    """At a start that finds its last step done, one step is run, as with TensorFlow's."""
    for expected in (first, last):
        count = Count()
        run(monitored(count, tmp_path, hooks=[hooks.StopAtStepHook(**options)]), count.step, at_once)
        assert saved(tmp_path)[0][0] == expected


@pytest.mark.parametrize("at_once", [False, True])
def test_logging_tensor(logged: pytest.LogCaptureFixture, at_once: bool) -> None:
    count = Count()
    log = hooks.LoggingTensorHook({"the loss": "loss", "a p": count.p}, every_n_iter=10, at_end=True)
    run(monitored(count, hooks=[log, hooks.StopAtStepHook(25)]), count.step, at_once)
    lines = [line for line in logged.messages if "the loss" in line]
    assert lines[0] == "a p = 2.0, the loss = 0.5"
    assert lines[1].startswith("a p = 22.0, the loss = 0.04545454") and lines[1].endswith(" sec)")
    assert lines[-1] == "a p = 50.0, the loss = 0.019999999552965164" and len(lines) == 4


def test_logging_tensor_by_the_clock_and_with_a_formatter(logged: pytest.LogCaptureFixture) -> None:
    count, at = Count(), list[float]()

    def formatter(values: Any) -> str:
        at.append(time.monotonic())
        if len(at) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return f"it is {values['p']:g}"

    log = hooks.LoggingTensorHook(["p"], every_n_secs=0.3, formatter=formatter)
    with monitored(count, hooks=[log]) as session:
        session.run(count.step, steps=10**9)
        assert session.should_stop()
    assert len([line for line in logged.messages if line.startswith("it is")]) == len(at) >= 4
    assert all(later - earlier > 0.25 for earlier, later in itertools.pairwise(at))


@pytest.mark.parametrize("at_once", [False, True])
def test_checkpoint_saver_calls_its_listeners(tmp_path: Path, at_once: bool) -> None:
    class Listener(hooks.CheckpointSaverListener):  # type: ignore[misc]
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def begin(self) -> None:
            self.seen.append("begin")

        def before_save(self, session: Any, global_step_value: int) -> None:
            self.seen.append(("before", global_step_value, session.step, float(session.run(count.p))))

        def after_save(self, session: Any, global_step_value: int) -> bool:
            assert saved(tmp_path)[0][0] >= global_step_value
            self.seen.append(("after", global_step_value))
            return global_step_value >= 300

        def end(self, session: Any, global_step_value: int) -> None:
            self.seen.append(("end", global_step_value))

    listener, count = Listener(), Count()
    saver = hooks.CheckpointSaverHook(str(tmp_path), save_steps=100, listeners=[listener])
    session = monitored(count, save_checkpoint_secs=None, hooks=[saver])
    with session:
        while not session.should_stop():
            session.run(count.step, steps=10) if at_once else session.run(count.step)
            if session.step % 100 == 0:
                wait_for(lambda: tmp_path.joinpath(f"model.ckpt-{session.step}.json").exists(), "its checkpoint")
    last = session.step
    assert listener.seen[0] == "begin" and listener.seen[-1] == ("end", last)
    befores = [entry for entry in listener.seen if entry[0] == "before"]
    assert [entry[1] for entry in befores][:3] == [100, 200, 300]
    assert all(step == now and p == 2.0 * step for _, step, now, p in befores)
    afters = [entry[1] for entry in listener.seen if entry[0] == "after"]
    assert afters[-1] == last >= 300
    reported = [entry[:2] for entry in listener.seen[1:-1]]
    assert reported == [(what, step) for _, step, *_ in befores for what in ("before", "after")], "each by its own"


def test_end_finds_the_last_checkpoint(tmp_path: Path) -> None:
    class Ends(hooks.SessionRunHook):  # type: ignore[misc]
        def end(self, session: Any) -> None:
            seen.append(saved(tmp_path)[0])

    seen: list[Any] = []
    count = Count()
    with monitored(count, tmp_path, hooks=[Ends()]) as session:
        session.run(count.step, steps=7)
    assert seen == [(7, "finish")]


def test_variables_are_logged_by_their_names(logged: pytest.LogCaptureFixture) -> None:
    count, twin = Count(), Count()
    run_hooks = [hooks.LoggingTensorHook([count.p, twin.p, "p"], every_n_iter=5)]
    with monitored(count, hooks=run_hooks) as session:
        session.run(count.step)
    name = count.p.name
    assert f"{name} = 2.0, {name}_1 = 0.0, p = 2.0" in logged.messages


def test_an_end_without_a_step_has_no_value_of_one(tmp_path: Path, logged: pytest.LogCaptureFixture) -> None:
    """A run that finds itself done when it is started again."""
    count = Count()
    final = hooks.FinalOpsHook({"p": count.p, "loss": "loss"})
    of_variables = hooks.FinalOpsHook([count.p])
    last = hooks.LoggingTensorHook(["loss", "p"], at_end=True, formatter=lambda values: f"{values['p']:.1f}")
    with monitored(count, tmp_path, hooks=[final, of_variables, last]):
        pass
    assert final.final_ops_values is None and of_variables.final_ops_values == [0.0]
    assert "No step was run, so there is no value of loss, p." in logged.messages


def test_two_run_directories_are_refused(tmp_path: Path) -> None:
    one, other = (hooks.CheckpointSaverHook(str(tmp_path / name), save_steps=5) for name in "ab")
    for options in ({"hooks": [one, other]}, {"hooks": [one], "folder": tmp_path / "c"}):
        with pytest.raises(ValueError, match="saves into one run directory"):
            monitored(Count(), **options)
    same = hooks.CheckpointSaverHook(str(tmp_path / "c"), save_steps=5)
    count = Count()
    with monitored(count, tmp_path / "c", hooks=[same]) as session:
        session.run(count.step, steps=7)
    assert saved(tmp_path / "c")[0] == (7, "finish")


def tags(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in events(folder):
        for value in event.summary.value:
            found.setdefault(value.tag, []).append(event.step)
    return found


def test_step_counter_and_summary_saver_write(tmp_path: Path, logged: pytest.LogCaptureFixture) -> None:
    count = Count()
    counter = hooks.StepCounterHook(every_n_steps=10, output_dir=str(tmp_path))
    saver = hooks.SummarySaverHook(
        save_steps=10, output_dir=str(tmp_path), summary_op=lambda: tf.summary.scalar("own", count.p)
    )
    run(monitored(count, hooks=[counter, saver, hooks.StopAtStepHook(35)]), count.step, True)
    assert tags(tmp_path) == {"own": [1, 11, 21, 31], "global_step/sec": [11, 21, 31]}
    assert [line for line in logged.messages if line.startswith("global_step/sec: ")]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("at_once_fails", [False, True])
def test_nan_tensor(tmp_path: Path, at_once: bool, at_once_fails: bool) -> None:
    p = tf.Variable(0.0)

    def step() -> dict[str, tf.Tensor]:
        return {"loss": tf.where(p.assign_add(1.0) >= 7.0, float("nan"), 1.0)}

    nan = hooks.NanTensorHook("loss", fail_on_nan_loss=at_once_fails)
    session = trainerd.MonitoredTrainingSession(
        checkpoint=tf.train.Checkpoint(p=p), checkpoint_dir=str(tmp_path), hooks=[nan]
    )
    if at_once_fails:
        with pytest.raises(hooks.NanLossDuringTrainingError, match="NaN loss during training"):
            run(session, step, at_once)
        assert not saved(tmp_path)
    else:
        run(session, step, at_once)
        assert saved(tmp_path) == [(7, "finish")]


def test_each_of_several_losses_is_looked_at_after_every_step() -> None:
    p = tf.Variable(0.0)

    def step() -> dict[str, tf.Tensor]:
        return {"one": p.assign_add(1.0), "other": tf.where(p >= 5.0, float("nan"), 1.0)}

    both = [hooks.NanTensorHook("one"), hooks.NanTensorHook("other", fail_on_nan_loss=False)]
    with trainerd.MonitoredTrainingSession(checkpoint=tf.train.Checkpoint(p=p), hooks=both) as session:
        session.run(step, steps=1000)
        assert session.step == 5 and session.should_stop()


def test_feed_fn_gives_the_arguments() -> None:
    p, fed = tf.Variable(0.0), iter(range(1, 10))

    def step(by: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"p": p.assign_add(by)}

    feed = hooks.FeedFnHook(lambda: {"by": tf.constant(float(next(fed)))})
    with trainerd.MonitoredTrainingSession(checkpoint=tf.train.Checkpoint(p=p), hooks=[feed]) as session:
        assert [session.run(step)["p"] for _ in range(3)] == [1.0, 3.0, 6.0]
        with pytest.raises(RuntimeError, match=r"fed twice. Conflict\(s\): \['by'\]"):
            session.run(step, feed_dict={"by": 1.0})


def test_final_ops_are_found_at_the_end() -> None:
    count = Count()
    final = hooks.FinalOpsHook({"p": count.p, "sum": lambda add: count.p + add}, {"add": 1.0})
    assert final.final_ops_values is None
    run(monitored(count, hooks=[hooks.StopAtStepHook(5), final]), count.step, True)
    assert final.final_ops_values == {"p": 10.0, "sum": 11.0}


def test_global_step_waiter_waits_for_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks.GlobalStepWaiterHook, "POLL_SECS", 0.01)
    count, step = Count(), tf.Variable(0, dtype=tf.int64)
    with monitored(count, global_step=step, hooks=[hooks.GlobalStepWaiterHook(5)]) as session:
        timer = threading.Timer(0.3, step.assign, (5,))
        begun = time.monotonic()
        timer.start()
        session.run(lambda: step.assign_add(1))
        assert time.monotonic() - begun >= 0.3 and session.step == 6
    with monitored(count, hooks=[hooks.GlobalStepWaiterHook(5)]) as session:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        session.run(count.step)  # nobody else counts: the pause ends the wait
        assert session.should_stop()


def test_profiler_writes_what_tensorboard_shows(tmp_path: Path) -> None:
    count = Count()
    profiler = hooks.ProfilerHook(save_steps=20, output_dir=str(tmp_path))
    run(monitored(count, hooks=[profiler, hooks.StopAtStepHook(45)]), count.step, True)
    assert len(list(tmp_path.glob("plugins/profile/*"))) in (1, 2)  # named by the second
    assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hooks.LoggingTensorHook(["a"]), "exactly one of every_n_iter and every_n_secs"),
        (lambda: hooks.LoggingTensorHook(["a"], 1, 1.0), "exactly one of every_n_iter and every_n_secs"),
        (lambda: hooks.LoggingTensorHook(["a"], 0), "invalid every_n_iter=0."),
        (lambda: hooks.StopAtStepHook(), "One of num_steps or last_step must be specified."),
        (lambda: hooks.StopAtStepHook(1, 2), "Only one of num_steps or last_step can be specified."),
        (lambda: hooks.StepCounterHook(1, 2.0), "exactly one of every_n_steps and every_n_secs should be provided."),
        (lambda: hooks.SummarySaverHook(1), "Exactly one of scaffold or summary_op must be provided."),
        (
            lambda: hooks.SummarySaverHook(1, summary_op=cast(Any, "x")),
            "must be a function that writes with tf.summary",
        ),
        (lambda: hooks.SummarySaverHook(summary_op=print), "Either every_secs or every_steps should be provided."),
        (lambda: hooks.CheckpointSaverHook("x", 1, 2), "Can not provide both every_secs and every_steps."),
        (lambda: hooks.CheckpointSaverHook("x", 1, saver=1, scaffold=2), "You cannot provide both saver and scaffold."),
        (lambda: hooks.ProfilerHook(), "Either every_secs or every_steps should be provided."),
    ],
)
def test_arguments_that_say_no_or_two_things_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        make()


# ---------------------------------------------------------------------- the session's own


def test_the_defaults_save_and_write_curves(tmp_path: Path) -> None:
    found = program()
    session = trainerd.MonitoredTrainingSession(checkpoint=found.checkpoint, checkpoint_dir=str(tmp_path))
    with session:
        session.run(found.step, steps=350)
    assert saved(tmp_path)[0] == (350, "finish") and state(tmp_path).metrics["loss"] > 0
    curves = tags(tmp_path)
    assert curves["loss"][:3] == [100, 200, 300] and len(curves["global_step/sec"]) >= 2


def test_the_curves_of_functions_have_points_by_seconds(tmp_path: Path) -> None:
    count = Count()
    with monitored(count, tmp_path, save_summaries_secs=0.05) as session:
        wait_for(lambda: len(tags(tmp_path).get("p", ())) >= 2 or not session.run(count.step, steps=20), "two points")


def stop_in_its_course(count: Count) -> None:
    """Send SIGTERM when it has been restored, if it is, and has been seen to step."""
    seen: set[float] = set()

    def look() -> bool:
        seen.add(float(count.p.numpy()))
        return len(seen) >= 5

    wait_for(look, "its steps")
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_pauses_it_and_it_resumes(tmp_path: Path) -> None:
    for _ in range(2):
        count = Count()
        threading.Thread(target=stop_in_its_course, args=(count,)).start()
        run(monitored(count, tmp_path), count.step, True)
        assert state(tmp_path).phase is Phase.PAUSED and saved(tmp_path)[0][1] == "pause"
        assert count.p.numpy() == 2.0 * saved(tmp_path)[0][0]
    assert len(saved(tmp_path)) == 2


def test_the_end_of_the_data_is_a_clean_end(tmp_path: Path) -> None:
    found = program(repeats=False)
    run(
        trainerd.MonitoredTrainingSession(checkpoint=found.checkpoint, checkpoint_dir=str(tmp_path)),
        found.step,
        at_once=True,
    )
    assert saved(tmp_path) == [(15, "finish")]


@pytest.mark.parametrize("options", [{"master": "grpc://x"}, {"scaffold": object()}, {"is_chief": False}])
def test_what_belongs_to_graphs_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"there is no graph|trains by itself"):
        monitored(Count(), **options)
