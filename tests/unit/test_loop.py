"""The loop over a session without TensorFlow: how a run is paused, saved, finished, and fails."""

from __future__ import annotations

import errno
import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import FakeTime, ScriptedSession, WriterByHand
from trainerd.checkpoints import catalogue, manifest
from trainerd.checkpoints.snapshot import Earlier, Snapshot, no_earlier
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import parse as configs
from trainerd.config.schema import Config
from trainerd.errors import JobError, StorageError
from trainerd.loop.contract import Events, Model, Steps
from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import Outcome
from trainerd.loop.recorder import Recorder
from trainerd.run.driven import Loop
from trainerd.run.run import Run
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import LastCheckpoint, Phase, State
from trainerd.system.gpus import DeviceState
from trainerd.system.threads import Background


@dataclass
class FakeEvents(Events):
    """Keeps what is written for TensorBoard."""

    points: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    begun_at: int | None = None
    summaries_at: list[int] = field(default_factory=list)
    failing: bool = False
    closed: bool = False
    synced: int = 0  # how many of the points are on disk

    @property
    def is_well(self) -> bool:
        return not self.failing

    def begin(self, step: int, session: Model) -> None:
        self.begun_at = step

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        if self.failing:
            raise StorageError("no space")
        if self.begun_at is not None:  # the file exists from then on
            self.points.append((step, dict(values)))

    def summaries(self, session: Model) -> None:
        self.summaries_at.append(session.step)

    def sync(self) -> None:
        self.synced = len(self.points)

    def close(self) -> None:
        self.closed = True


@dataclass
class Life:
    """One run of the loop, and all that can be seen of it."""

    rundir: RunDirectory
    keys: dict[str, Any] = field(default_factory=dict)
    session: ScriptedSession = field(default_factory=ScriptedSession)
    flag: Flag = field(default_factory=Flag)
    events: FakeEvents = field(default_factory=FakeEvents)
    states: list[State] = field(default_factory=list)
    reload: Callable[[], Config | None] = lambda: None
    writer: Any = field(default_factory=WriterByHand)
    timer: Callable[[], float] = time.monotonic
    before_save: Callable[[int], None] | None = None
    steered: bool = False  # whether the session can be restored while it trains

    def __post_init__(self) -> None:
        self.config = configs.parse({"entry": "a:b", "logdir": str(self.rundir.path), **self.keys})
        self.reporter = Reporter(State(), [self.states.append])
        self.run = Run(
            self.config,
            self.session,
            self.rundir,
            flag=self.flag,
            reporter=self.reporter,
            events=self.events,
            reload=lambda: self.reload(),
            writer=self.writer,
            timer=self.timer,
            before_save=self.before_save,
            steered=self.session if self.steered else None,
        )

    def train(self) -> Outcome:
        self.run.restore()
        return Loop(self.run, self.session, flag=self.flag, reporter=self.reporter).train()

    def at_step(self, step: int, do: Callable[[], object]) -> None:
        """Do something just before a step, as if from another thread."""

        def on_step(now: int) -> None:
            if now == step:
                do()

        self.session.on_step = on_step


def saved(rundir: RunDirectory) -> list[tuple[int, str]]:
    return [(s, manifest.read(rundir.manifest(s)).reason) for s in catalogue.resume_order(rundir)]


def test_it_trains_to_max_steps_and_saves(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 100})
    assert life.train() == Outcome(Phase.FINISHED, "max_steps = 100 is reached")
    assert saved(rundir) == [(100, "finish")]
    assert life.events.begun_at == 0 and life.events.closed
    assert life.states[-1].step == 100 and life.states[-1].metrics["p"] == 200.0


def test_the_state_names_the_devices_that_train(rundir: RunDirectory) -> None:
    class OnTwo(ScriptedSession):
        @property
        def devices(self) -> Mapping[str, int | None]:
            return {"CPU:0": None, "CPU:1": None}

    life = Life(rundir, {"max_steps": 10}, session=OnTwo())
    life.train()
    assert life.states[-1].devices == [DeviceState("CPU:0"), DeviceState("CPU:1")]


def test_a_pause_saves_at_that_very_step_and_the_next_start_resumes(rundir: RunDirectory) -> None:
    first = Life(rundir, {"max_steps": 100})
    first.at_step(42, lambda: first.flag.raise_for(Request.PAUSE))
    assert first.train().phase is Phase.PAUSED
    assert saved(rundir) == [(42, "pause")]
    second = Life(rundir, {"max_steps": 100})
    assert second.train().phase is Phase.FINISHED
    assert second.events.begun_at == 42
    assert second.session.value == 200.0
    assert saved(rundir)[0] == (100, "finish")


def test_a_pause_before_the_first_step_saves_nothing(rundir: RunDirectory) -> None:
    life = Life(rundir)
    life.flag.raise_for(Request.PAUSE)
    assert life.train().phase is Phase.PAUSED
    assert saved(rundir) == []
    assert life.events.begun_at is None


def test_a_pause_file_is_consumed(rundir: RunDirectory) -> None:
    life = Life(rundir)
    life.at_step(5, rundir.pause.touch)
    assert life.train().phase is Phase.PAUSED
    assert not rundir.pause.exists()


def test_a_save_is_of_that_step_and_training_continues(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 50})
    life.at_step(20, lambda: life.flag.raise_for(Request.SAVE))
    life.train()
    assert saved(rundir) == [(50, "finish"), (20, "request")]


def test_a_save_with_an_id_is_answered(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 50})

    def ask() -> None:
        rundir.save.write_text("my-id\n")
        life.flag.raise_for(Request.SAVE)

    life.at_step(20, ask)
    life.train()
    answer = life.states[-1].answer
    assert answer is not None and (answer.ids, answer.step, answer.error) == (["my-id"], 20, None)


def test_a_save_that_is_asked_for_twice_is_made_once_and_answered_again(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 50})
    seen = list[list[str]]()

    def ask(*ids: str) -> None:
        rundir.save.write_text("".join(f"{each}\n" for each in ids))
        life.flag.raise_for(Request.SAVE)

    def ask_others_then_again(step: int) -> None:
        if 10 < step <= 30:
            ask(f"id-{step}")
        if step in (10, 35):
            ask("my-id")
        if step == 36:
            answer = life.reporter.state.answer_to("my-id")
            assert answer is not None and answer.step == 10
            seen.extend(each.ids for each in life.reporter.state.answers)

    life.session.on_step = ask_others_then_again
    life.train()
    assert 35 not in [step for step, _ in saved(rundir)]
    assert len(seen) == 16 and seen[-1] == ["my-id"] and ["id-30"] in seen


def test_a_save_asked_for_together_with_a_pause_is_answered(rundir: RunDirectory) -> None:
    life = Life(rundir)

    def ask() -> None:
        rundir.save.write_text("my-id\n")
        life.flag.raise_for(Request.SAVE)
        life.flag.raise_for(Request.PAUSE)

    life.at_step(20, ask)
    life.train()
    answer = life.states[-1].answer
    assert answer is not None and answer.step == 20
    assert saved(rundir) == [(20, "pause")]


def test_checkpoints_by_steps_fall_on_multiples(rundir: RunDirectory) -> None:
    Life(rundir, {"max_steps": 25, "checkpoint": {"save_model_steps": 10}}).train()
    assert saved(rundir) == [(25, "finish"), (20, "schedule"), (10, "schedule")]


def test_a_finished_run_that_is_started_again_is_finished(rundir: RunDirectory) -> None:
    Life(rundir, {"max_steps": 10}).train()
    again = Life(rundir, {"max_steps": 10})
    assert again.train().phase is Phase.FINISHED
    assert again.session.step == 10 and again.events.begun_at is None
    longer = Life(rundir, {"max_steps": 12})
    longer.train()
    assert longer.session.step == 12


def test_a_target_ends_the_run(rundir: RunDirectory) -> None:
    session = ScriptedSession(figures=lambda step: {"accuracy": step / 100})
    keys = {"target": "val_accuracy >= 0.5", "evaluate": {"evaluate_steps": 10}}
    outcome = Life(rundir, keys, session=session).train()
    assert outcome.why == "the target val_accuracy >= 0.5 is reached at step 50"
    assert manifest.read(rundir.manifest(50)).metrics["val_accuracy"] == 0.5


def test_the_end_of_the_data_is_a_clean_end(rundir: RunDirectory) -> None:
    outcome = Life(rundir, session=ScriptedSession(ends_at=7)).train()
    assert outcome.phase is Phase.FINISHED and "the dataset ended after step 7" in outcome.why
    assert saved(rundir) == [(7, "finish")]


def test_a_dataset_without_a_batch_is_an_error(rundir: RunDirectory) -> None:
    with pytest.raises(JobError, match="the dataset has no batches") as raised:
        Life(rundir, session=ScriptedSession(ends_at=0)).train()
    assert "repeat" not in str(raised.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_stops_with_its_step_and_saves_nothing(rundir: RunDirectory, value: float) -> None:
    session = ScriptedSession(loss=lambda step: value if step == 13 else 1.0)
    life = Life(rundir, {"checkpoint": {"save_model_steps": 5}}, session=session)
    with pytest.raises(JobError, match=r"in step 13.*resumes from step 10") as caught:
        life.train()
    assert caught.value.exit_code == 70
    assert saved(rundir) == [(10, "schedule"), (5, "schedule")]


def test_a_nan_in_a_variable_is_never_saved(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 10})
    life.at_step(4, lambda: setattr(life.session, "value", math.nan))
    with pytest.raises(JobError, match=r"'value' holds a NaN after step 10"):
        life.train()
    assert saved(rundir) == []


@pytest.mark.parametrize(("sound", "steps"), [(True, [(29, "failure")]), (False, [])])
def test_a_job_that_raises_is_saved_where_it_is_sound(
    rundir: RunDirectory, sound: bool, steps: list[tuple[int, str]]
) -> None:
    life = Life(rundir)

    def boom() -> None:
        raise JobError("the job failed in step 30", step=29, sound=sound)

    life.at_step(30, boom)
    with pytest.raises(JobError, match="step 30"):
        life.train()
    assert saved(rundir) == steps
    assert life.events.closed


def full_disk() -> Callable[[], None]:
    """Make every fsync of a file fail, until the returned function is called."""

    def fail(path: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch = pytest.MonkeyPatch()
    patch.setattr("trainerd.checkpoints.store.fsync_file", fail)
    return patch.undo


def test_a_full_disk_does_not_end_the_training(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 30, "checkpoint": {"save_model_steps": 10}})
    space_is_back = full_disk()
    life.at_step(25, space_is_back)
    try:
        assert life.train().phase is Phase.FINISHED
    finally:
        space_is_back()
    warned = [s.warnings for s in life.states if s.warnings]
    assert "the last save failed" in warned[0][0] and "Free some space" in warned[0][0]
    assert life.states[-1].warnings == []
    assert saved(rundir) == [(30, "finish")]


def test_a_pause_on_a_full_disk_reports_the_truth(rundir: RunDirectory) -> None:
    life = Life(rundir)
    space_is_back = full_disk()
    life.at_step(5, lambda: life.flag.raise_for(Request.PAUSE))
    try:
        with pytest.raises(StorageError) as caught:
            life.train()
    finally:
        space_is_back()
    assert caught.value.exit_code == 74


def test_a_failed_save_answers_with_its_error(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 30})
    space_is_back = full_disk()

    def at(step: int) -> None:
        if step == 10:
            rundir.save.write_text("my-id")
            life.flag.raise_for(Request.SAVE)
        if step == 12:
            space_is_back()

    life.session.on_step = at
    try:
        life.train()
    finally:
        space_is_back()
    answer = life.states[-1].answer
    assert answer is not None and answer.step is None and "No space left" in str(answer.error)


def test_curves_that_cannot_be_written_do_not_end_the_training(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 30, "summary": {"metrics_steps": 10}}, events=FakeEvents(failing=True))
    assert life.train().phase is Phase.FINISHED
    assert "event files cannot be written" in life.states[-1].warnings[0]


def test_what_is_wrong_with_the_last_save_does_not_hide_why_the_job_failed(rundir: RunDirectory) -> None:
    def evaluate(step: int) -> dict[str, float]:
        session.value = math.nan
        raise JobError("the job's evaluate failed", step=step, sound=True)

    session = ScriptedSession(figures=evaluate)
    life = Life(rundir, {"evaluate": {"evaluate_steps": 10}}, session)
    with pytest.raises(JobError, match="evaluate failed"):
        life.train()
    assert saved(rundir) == []


@pytest.mark.parametrize("figures", [None, lambda step: {"loss": 0.5}])
def test_a_target_that_no_metric_can_reach_is_warned_of(rundir: RunDirectory, figures: Any) -> None:
    keys = {"max_steps": 30, "target": "val_los >= 1", "evaluate": {"evaluate_steps": 10}}
    life = Life(rundir, keys, session=ScriptedSession(figures=figures))
    life.train()
    assert "no metric 'val_los'" in life.states[-1].warnings[0] and len(life.states[-1].warnings) == 1
    of_best = {"max_steps": 45, "checkpoint": {"best": "max acuracy"}, "evaluate": {"evaluate_steps": 10}}
    best = Life(rundir, of_best, session=ScriptedSession(figures=figures))
    best.train()
    assert "best: the job has no metric 'acuracy'" in best.states[-1].warnings[0]
    good = Life(rundir, keys | {"max_steps": 60, "target": "loss >= 10"})
    good.train()
    assert not good.states[-1].warnings


def test_the_warning_of_curves_is_taken_back_when_they_can_be_written_again(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 30, "summary": {"metrics_steps": 10}}, events=FakeEvents(failing=True))

    def at(step: int) -> None:
        if step == 15:  # the point of step 10 has failed
            life.flag.raise_for(Request.SAVE)
        if step == 20:
            life.events.failing = False

    life.session.on_step = at
    life.train()
    assert any(state.warnings for state in life.states) and not life.states[-1].warnings


@pytest.mark.parametrize(("secs", "at"), [(0, []), (1000, [35])])
def test_summaries_that_are_turned_off_are_not_made_at_the_end_either(
    rundir: RunDirectory, secs: int, at: list[int]
) -> None:
    life = Life(rundir, {"max_steps": 35, "summary": {"save_summaries_secs": secs}})
    life.train()
    assert life.events.summaries_at == at


def test_points_of_the_curves_fall_on_multiples(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 35, "summary": {"metrics_steps": 10}})
    life.train()
    losses = [(step, values["loss"]) for step, values in life.events.points if "loss" in values]
    assert losses == [(10, 1 / 10), (20, 1 / 20), (30, 1 / 30), (35, 1 / 35)]


def test_points_are_on_disk_before_their_checkpoint_is(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"max_steps": 30, "summary": {"metrics_steps": 10}, "checkpoint": {"save_model_steps": 10}}
    life, publish, lost = Life(rundir, keys), CheckpointStore.publish, list[int]()

    def look(store: CheckpointStore, snapshot: Snapshot, *rest: Any) -> LastCheckpoint:
        lost.extend(step for step, _ in life.events.points[life.events.synced :] if step <= snapshot.step)
        return publish(store, snapshot, *rest)

    monkeypatch.setattr(CheckpointStore, "publish", look)
    life.train()
    assert [step for step, _ in saved(rundir)] == [30, 20, 10] and not lost


def test_points_that_cannot_be_synced_keep_no_checkpoint_from_being_made(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(rundir, {"max_steps": 30})

    def hang() -> None:
        raise StorageError("the disk hangs")

    monkeypatch.setattr(life.events, "sync", hang)
    assert life.train().phase is Phase.FINISHED
    assert saved(rundir) == [(30, "finish")]


def test_metrics_of_an_epochs_end_that_was_left_undone_are_points_too(rundir: RunDirectory) -> None:
    class Epochs(ScriptedSession):
        """The end of the epoch of step 20 is still to be done when it is restored there."""

        is_due = True

        def run_until(self, limit: int) -> Steps:
            if self.step != 20 or not self.is_due:
                return super().run_until(limit)
            self.is_due = False
            return Steps(21, (), np.zeros((0, 0)), then=lambda: {"val_loss": 0.5})

    Life(rundir, {"max_steps": 20}).train()
    life = Life(rundir, {"max_steps": 40}, Epochs())
    life.train()
    assert (20, {"val_loss": 0.5}) in life.events.points
    later = Life(rundir, {"max_steps": 50})
    later.run.restore()
    state = later.reporter.state
    assert (state.step, state.measured) == (40, {"val_loss": 20}), "each metric has its step, in a manifest too"
    assert state.shown_metrics()["val_loss"] == "0.5 at step 20" and "val_loss 0.5 at step 20" in state.line()


def test_a_metric_that_steps_no_longer_have_keeps_its_step(rundir: RunDirectory) -> None:
    reporter = Reporter(State(), [])
    recorder = Recorder(rundir, reporter, FakeEvents())
    recorder.steps(Steps(1, ("loss", "val_loss"), np.ones((4, 2))))
    recorder.steps(Steps(5, ("loss",), np.ones((3, 1))))
    assert (reporter.state.step, reporter.state.measured) == (7, {"val_loss": 4})
    recorder.steps(Steps(8, ("loss", "val_loss"), np.ones((1, 2))))
    assert reporter.state.measured == {}


def test_a_reload_changes_schedules_without_a_stop(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 40})
    keys = {"max_steps": 40, "checkpoint": {"save_model_steps": 10, "keep_last": 2}}
    life.reload = lambda: configs.parse({"entry": "a:b", "logdir": str(rundir.path), **keys})
    life.at_step(15, lambda: life.flag.raise_for(Request.RELOAD))
    life.train()
    assert [s for s, _ in saved(rundir)] == [40, 30]


def test_a_wrong_config_at_a_reload_changes_nothing(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 40})
    life.at_step(15, lambda: life.flag.raise_for(Request.RELOAD))
    assert life.train().phase is Phase.FINISHED


def test_phases_are_seen_in_their_order(rundir: RunDirectory) -> None:
    session = ScriptedSession(figures=lambda step: {"accuracy": 0.1})
    life = Life(rundir, {"max_steps": 10, "checkpoint": {"save_model_steps": 5}}, session=session)
    life.train()
    seen = [state.phase for state in life.states]
    order = [phase for i, phase in enumerate(seen) if i == 0 or seen[i - 1] is not phase]
    assert order[0] is Phase.TRAINING and order[-1] is Phase.TRAINING  # what comes after it is the process's to say
    assert Phase.EVALUATING in order and Phase.SAVING in order
    assert 5 in [state.saving for state in life.states] and life.states[-1].saving is None


# ---------------------------------------------------------------------- saves in the background


def test_training_continues_while_a_save_is_under_way(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 30, "checkpoint": {"save_model_secs": 0}}, writer=WriterByHand(held=True))
    seen: list[tuple[int | None, list[int]]] = []

    def at(step: int) -> None:
        if step == 10:
            life.flag.raise_for(Request.SAVE)
        if step == 20:
            seen.append((life.reporter.state.saving, rundir.steps()))
            life.writer.release()

    life.session.on_step = at
    life.train()
    assert seen == [(10, [])]
    assert saved(rundir) == [(30, "finish"), (10, "request")]
    assert json.loads((rundir.path / "model.ckpt-10.data-00000-of-00001").read_text()) == 20.0


def test_who_is_answered_sees_the_checkpoint_and_no_save(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 30, "checkpoint": {"save_model_secs": 0}})

    def ask() -> None:
        rundir.save.write_text("id")
        life.flag.raise_for(Request.SAVE)

    life.at_step(10, ask)
    life.train()
    reported = next(state for state in life.states if state.answer is not None)
    assert reported.saving is None and reported.last_checkpoint is not None and reported.last_checkpoint.step == 10


def test_who_asks_while_a_save_is_under_way_gets_one_that_begins_after(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 40, "checkpoint": {"save_model_secs": 0}}, writer=WriterByHand(held=True))

    def at(step: int) -> None:
        if step in (10, 15, 20):
            rundir.save.write_text(f"id-{step}")
            life.flag.raise_for(Request.SAVE)
        if step == 25:
            life.writer.release()

    life.session.on_step = at
    life.train()
    answers = [state.answer for state in life.states if state.answer is not None]
    assert [answer.ids for i, answer in enumerate(answers) if i == 0 or answers[i - 1] != answer] == [
        ["id-10"],
        ["id-15", "id-20"],
    ]
    steps = [step for step, _ in saved(rundir)]
    assert steps[0] == 40 and steps[-1] == 10 and 20 < steps[1] <= 26


def test_a_schedule_by_the_clock_leaves_out_what_comes_too_soon(rundir: RunDirectory, clock: FakeTime) -> None:
    keys = {"max_steps": 40, "checkpoint": {"save_model_secs": 1, "keep_last": 100}}
    life = Life(rundir, keys, writer=WriterByHand(held=True), timer=clock)

    def at(step: int) -> None:
        clock.now += 0.5
        life.flag.raise_for(Request.TICK)
        if step == 30:
            life.writer.release()

    life.session.on_step = at
    life.train()
    steps = [step for step, _ in saved(rundir)][::-1]
    assert steps[0] < 5 and all(step >= 30 for step in steps[1:])


@pytest.mark.parametrize("schedule", [{}, {"save_model_steps": 5}, {"save_model_secs": 5}])
def test_a_save_that_fails_is_reported_at_once_and_tried_again_later_and_later(
    rundir: RunDirectory, clock: FakeTime, caplog: pytest.LogCaptureFixture, schedule: dict[str, int]
) -> None:
    keys = {"save_model_secs": 0, "keep_last": 100} | schedule
    life = Life(rundir, {"max_steps": 400, "checkpoint": keys}, timer=clock)
    space_is_back = full_disk()

    def at(step: int) -> None:
        clock.now += 1.0
        life.flag.raise_for(Request.TICK)
        if step == 10 and not schedule:
            life.flag.raise_for(Request.SAVE)
        if step == 120:
            space_is_back()

    life.session.on_step = at
    with caplog.at_level("ERROR"):
        life.train()
    failed = [record.step for record in caplog.records if getattr(record, "event", "") == "save-failed"]  # type: ignore[attr-defined]
    first = failed[0]
    assert failed == [first, first + 15, first + 45, first + 105] and first <= 10
    steps = [step for step, _ in saved(rundir)]
    assert steps[-1] == first + 225 and steps[0] == 400
    assert len(steps) == 2 if not schedule else len(steps) > 20
    warned = [bool(state.warnings) for state in life.states]
    assert any(warned) and not warned[-1]


def test_a_nan_that_a_save_finds_ends_the_run(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 40}, writer=WriterByHand(held=True))

    def at(step: int) -> None:
        if step == 10:
            life.session.value = math.nan
            life.flag.raise_for(Request.SAVE)
        if step == 20:
            life.writer.release()

    life.session.on_step = at
    with pytest.raises(
        JobError,
        match=r"'value' holds a NaN after step 10, so that step was not saved\..*next start begins at step 0",
    ):
        life.train()
    assert saved(rundir) == [] and life.session.step < 25


def test_of_two_saves_that_hold_a_nan_the_first_is_reported(rundir: RunDirectory) -> None:
    life = Life(rundir)
    saving = life.run.checkpointer
    life.session.value, life.session.step = math.nan, 20
    saving.start(life.session, "schedule")
    life.session.step = 30
    with pytest.raises(JobError, match="after step 20"):
        saving.start(life.session, "schedule")
    with pytest.raises(JobError, match="after step 20"):
        saving.finish_save(life.session)


def test_a_save_that_hangs_is_warned_of_and_ends_a_pause_with_the_truth(
    rundir: RunDirectory, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainerd.loop.checkpointer.POLL_SECS", 0.0)
    life = Life(rundir, {"watchdog": {"save_secs": 60}}, writer=WriterByHand(held=True), timer=clock)
    warned: list[list[str]] = []

    def at(step: int) -> None:
        clock.now += 2.0
        life.flag.raise_for(Request.TICK)
        if step == 10:
            life.flag.raise_for(Request.SAVE)
        if step == 50:
            warned.append(life.reporter.state.warnings)
            life.flag.raise_for(Request.PAUSE)

    life.session.on_step = at
    with pytest.raises(StorageError, match=r"save of step 10.*no progress for 60 s"):
        life.train()
    assert "a save hangs: step 10" in warned[0][0]


def test_each_of_so_many_steps_is_saved_though_the_one_before_is_under_way(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainerd.loop.checkpointer.POLL_SECS", 0.001)
    life = Life(rundir, {"max_steps": 40, "checkpoint": {"save_model_steps": 10}}, writer=Background("slow"))
    real, loop_waits = life.run.store.publish, threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Any:
        assert loop_waits.wait(10)
        loop_waits.clear()
        return real(*args, **kwargs)

    def see(state: State) -> None:
        if state.phase is Phase.SAVING:
            loop_waits.set()

    monkeypatch.setattr(life.run.store, "publish", slow)
    with life.reporter.observed_by([see]):
        life.train()
    assert [step for step, _ in saved(rundir)] == [40, 30, 20, 10]


def test_saves_and_the_end_go_before_the_deletions_that_are_left(rundir: RunDirectory) -> None:
    life = Life(rundir, {"max_steps": 3000, "checkpoint": {"save_model_secs": 0}}, writer=Background("deleting"))
    deleting, batches = threading.Event(), itertools.count()

    def without_end() -> bool:
        deleting.set()
        next(batches)
        return True

    life.run.store.tidy = without_end  # type: ignore[method-assign]

    def at(step: int) -> None:
        if step in (10, 20):
            life.flag.raise_for(Request.SAVE)
        if step in (15, 25):
            assert deleting.wait(10)
            deleting.clear()

    life.session.on_step = at
    assert life.train().phase is Phase.FINISHED
    assert [reason for _, reason in saved(rundir)] == ["finish", "request", "request"]
    at_end = next(batches)
    assert life.writer.close(10)
    assert next(batches) == at_end + 1, "nothing is deleted any more when the run directory is given back"


def test_auto_saves_as_often_as_its_cost_allows(rundir: RunDirectory, clock: FakeTime) -> None:
    keys = {"max_steps": 2_800, "checkpoint": {"save_model_secs": "auto", "max_overhead": 0.01, "keep_last": 1000}}
    life = Life(rundir, keys, timer=clock)
    real = life.run.store.publish

    def slow(*args: Any, **kwargs: Any) -> Any:
        clock.now += 1.0  # nothing is done meanwhile: the writer of this test is not in the background
        return real(*args, **kwargs)

    life.run.store.publish = slow  # type: ignore[method-assign]

    def at(step: int) -> None:
        clock.now += 0.5
        life.flag.raise_for(Request.TICK)

    life.session.on_step = at
    life.train()
    steps = [step for step, _ in saved(rundir)][::-1]
    gaps = [b - a for a, b in itertools.pairwise(steps[8:-1])]  # until then it learns the cost
    assert all(192 <= gap <= 202 for gap in gaps) and len(gaps) >= 5, steps
    assert life.reporter.state.save_model_secs == pytest.approx(100.0, rel=0.05)


def test_auto_writes_no_more_a_day_than_it_may(rundir: RunDirectory) -> None:
    @dataclass(frozen=True)
    class Large(FakeSnapshot):
        def write(self, prefix: Path, moved: Callable[[int], None], earlier: Earlier = no_earlier) -> dict[str, str]:
            prefix.with_name(prefix.name + ".meta").write_bytes(bytes(10_000))
            return super().write(prefix, moved, earlier)

    keys = {"max_steps": 50, "checkpoint": {"save_model_secs": "auto", "disk_writes_per_day": 0.001}}
    life = Life(rundir, keys)
    life.session.snapshot = lambda kept="host": Large(life.session.step, life.session.value)  # type: ignore[method-assign]
    life.at_step(10, lambda: life.flag.raise_for(Request.SAVE))
    life.train()
    seconds = manifest.read(rundir.manifest(50)).size * 86400 / 1e6
    assert 864 < seconds < 900 and life.reporter.state.save_model_secs == pytest.approx(seconds, rel=0.01)
