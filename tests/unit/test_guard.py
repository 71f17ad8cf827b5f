"""What may take long at a boundary keeps nobody who asks for a pause, or for a save, waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.unit.conftest import FakeTime, ScriptedSession
from tests.unit.test_loop import Life, full_disk, saved
from trainerd.checkpoints import manifest
from trainerd.checkpoints.snapshot import Kept
from trainerd.errors import JobError, StorageError
from trainerd.loop.flag import Flag, Request
from trainerd.loop.guard.guard import LoopGuard
from trainerd.loop.outcome import Outcome
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase

KEYS = {"max_steps": 40, "evaluate": {"evaluate_steps": 10}, "checkpoint": {"save_model_steps": 10, "keep_last": 9}}


@dataclass
class Guarded:
    """A run whose evaluation can be interrupted. The process continues where it would end, unless it `is_mortal`."""

    rundir: RunDirectory
    keys: dict[str, object] = field(default_factory=lambda: dict(KEYS))
    meanwhile: Callable[[int], None] = lambda step: None
    evaluated: list[int] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)
    timer: FakeTime = field(default_factory=FakeTime)
    is_mortal: bool = False

    def __post_init__(self) -> None:
        self.session = ScriptedSession(figures=self._evaluate)
        self.run = Life(self.rundir, self.keys, self.session, timer=self.timer)
        self.guard = LoopGuard(self.run.flag, self.run.run, self.end, self.failed.append, timer=self.timer)
        self.run.run.guarded_by(self.guard)

    def end(self, outcome: Outcome) -> None:
        """In place of the process's end."""
        self.outcomes.append(outcome)
        if self.is_mortal:
            raise _Ended

    def ask(self, request: Request) -> None:
        """A request comes, and the guard's thread looks."""
        self.run.flag.raise_for(request)
        self.guard.serve()

    def _evaluate(self, step: int) -> dict[str, float]:
        self.meanwhile(step)
        self.evaluated.append(step)
        return {"p": self.session.value}

    def train(self) -> Outcome:
        return self.run.train()


class _Ended(BaseException):
    """The process has ended."""


def paused_in(rundir: RunDirectory, step: int, keys: dict[str, object] | None = None) -> Guarded:
    """A run that was paused in the evaluation of a step, and has ended there."""
    one = Guarded(rundir, keys or dict(KEYS), is_mortal=True)
    one.meanwhile = lambda now: one.ask(Request.PAUSE) if now == step else None
    with pytest.raises(_Ended):
        one.train()
    return one


def test_a_pause_in_an_evaluation_is_made_of_the_state_before_it(rundir: RunDirectory) -> None:
    seen: list[tuple[int, str]] = []
    points: list[tuple[int, dict[str, float]]] = []
    one = Guarded(rundir)

    def pause(step: int) -> None:
        if step == 20:
            one.session.value = -1.0  # what the evaluation does is not in it
            rundir.pause.touch()
            one.ask(Request.PAUSE)
            seen.extend(saved(rundir)[:1])
            points.extend(one.run.events.points)

    one.meanwhile = pause
    one.train()
    assert [step for step, values in points if "loss" in values] == [20], "the next start does not know this loss"
    assert seen == [(20, "pause")] and not rundir.pause.exists()
    assert one.outcomes[0].phase is Phase.PAUSED and "the evaluation of step 20 was abandoned" in one.outcomes[0].why
    phases = [state.phase for state in one.run.states]
    assert Phase.PAUSING in phases and Phase.SAVING in phases


@pytest.mark.parametrize("step", [10, 20, 30, 40])
def test_it_is_made_again_at_the_same_step_and_the_run_is_the_one_without_a_pause(
    rundir: RunDirectory, step: int
) -> None:
    whole = Guarded(RunDirectory(rundir.path / "whole"))
    whole.run.rundir.create()
    whole.train()
    first = paused_in(rundir, step)
    assert manifest.read(rundir.manifest(step)).unfinished
    second = Guarded(rundir)
    assert second.train().phase is Phase.FINISHED
    assert first.evaluated + second.evaluated == whole.evaluated == [10, 20, 30, 40]
    for at in (10, 20, 30, 40):
        ours, theirs = (manifest.read(each.manifest(at)) for each in (rundir, whole.run.rundir))
        assert (ours.metrics, ours.reason, ours.unfinished) == (theirs.metrics, theirs.reason, ())
        assert ours.files == theirs.files
    curves = first.run.events.points + second.run.events.points
    assert [point for point in curves if "val_p" in point[1]] == [
        point for point in whole.run.events.points if "val_p" in point[1]
    ]


def test_another_pause_leaves_it_for_the_next_start_again(rundir: RunDirectory) -> None:
    paused_in(rundir, 20)
    again = paused_in(rundir, 20)
    assert again.session.step == 20
    assert manifest.read(rundir.manifest(20)).unfinished
    last = Guarded(rundir)
    last.train()
    assert last.evaluated == [20, 30, 40]


def test_a_save_is_announced_while_the_evaluation_runs(rundir: RunDirectory) -> None:
    one, answered = Guarded(rundir), list[str]()

    def save(step: int) -> None:
        if step == 20:
            for name in ("one", "two"):
                rundir.save.write_text(name)
                one.ask(Request.SAVE)
                assert one.run.reporter.state.answer is not None
                assert one.run.reporter.state.answer.step == 20
                answered.extend(one.run.reporter.state.answer.ids)

    one.meanwhile = save
    assert one.train().phase is Phase.FINISHED
    assert answered == ["one", "two"] and one.evaluated == [10, 20, 30, 40]
    assert manifest.read(rundir.manifest(20)).metrics["val_p"] == 40.0, "it was saved again with its evaluation"


def test_a_save_that_is_under_way_is_ended_first(rundir: RunDirectory) -> None:
    one, seen = Guarded(rundir, {**KEYS, "checkpoint": {"save_model_secs": 0}}), list[list[int]]()
    one.run.writer.held = True

    def save(step: int) -> None:
        if step == 20:
            one.ask(Request.SAVE)  # that of step 15 is not written yet
            seen.append(rundir.steps())
            one.run.writer.release()
            one.guard.serve()
            seen.append(rundir.steps())

    one.meanwhile = save
    one.session.on_step = lambda step: one.run.flag.raise_for(Request.SAVE) if step == 15 else None
    one.train()
    assert seen == [[], [20, 15]]


def test_where_it_cannot_be_written_the_pause_waits_for_the_boundary(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    one = Guarded(rundir)
    space_is_back = full_disk()

    def pause(step: int) -> None:
        if step == 20:
            one.ask(Request.PAUSE)
            assert not one.outcomes and one.run.flag.wants(Request.PAUSE)
            space_is_back()
            one.guard.serve()
            assert not one.outcomes, "of a state that was given back nothing is made"

    one.meanwhile = pause
    try:
        assert one.train().phase is Phase.PAUSED
    finally:
        space_is_back()
    assert saved(rundir)[0] == (20, "pause") and one.evaluated == [10, 20]
    assert "The pause waits until the evaluation ends." in caplog.text


def test_a_step_that_does_not_end_is_abandoned_after_a_while(rundir: RunDirectory) -> None:
    one = Guarded(rundir, {**KEYS, "watchdog": {"pause_secs": 60}})
    one.session.calls_python = True

    def hang(step: int) -> None:
        one.timer.now += 0.1
        if step == 16:
            one.ask(Request.SAVE)
            one.ask(Request.PAUSE)
            one.timer.now += 59
            one.guard.serve()
            assert not one.outcomes and one.run.flag.wants(Request.SAVE)
            one.timer.now += 1
            one.guard.serve()
            assert [why.phase for why in one.outcomes] == [Phase.PAUSED]
            raise JobError("the workers are gone", step=15, sound=False)

    one.session.on_step = hang
    with pytest.raises(JobError):
        one.train()
    assert "the step after 10 did not end for 60 s" in one.outcomes[0].why
    assert saved(rundir)[0][0] == 10, "the newest boundary"


def test_a_step_that_does_not_end_takes_nothing_back_that_is_on_disk(rundir: RunDirectory) -> None:
    """Where holding the state is dear, a checkpoint of a schedule may be newer than what is held."""
    one = Guarded(rundir, {"checkpoint": {"save_model_steps": 10}, "watchdog": {"pause_secs": 60}})
    one.session.calls_python = True  # and no time passes, so that the first state is held for good

    def hang(step: int) -> None:
        if step == 16:
            one.ask(Request.PAUSE)
            one.timer.now += 60
            one.guard.serve()
            raise JobError("the workers are gone", step=15, sound=False)

    one.session.on_step = hang
    with pytest.raises(JobError):
        one.train()
    assert one.outcomes and saved(rundir) == [(10, "schedule")]


def test_a_step_that_does_not_end_fails_the_pause_where_nothing_can_be_saved(rundir: RunDirectory) -> None:
    one = Guarded(rundir, {"checkpoint": {"save_model_secs": 0}, "watchdog": {"pause_secs": 60}})
    one.session.calls_python = True
    space_is_back = full_disk()

    def hang(step: int) -> None:
        one.timer.now += 1
        if step == 16:
            one.run.flag.raise_for(Request.TICK)
        if step == 17:
            one.ask(Request.PAUSE)
            one.timer.now += 60
            one.guard.serve()
            raise JobError("the workers are gone", step=16, sound=False)

    one.session.on_step = hang
    try:
        with pytest.raises(JobError):
            one.train()
    finally:
        space_is_back()
    assert not one.outcomes and isinstance(one.failed[0], StorageError)


@pytest.mark.parametrize(("calls_python", "secs"), [(False, 60), (True, 0)])
def test_a_step_that_may_only_be_long_is_waited_for(rundir: RunDirectory, calls_python: bool, secs: int) -> None:
    one = Guarded(rundir, {**KEYS, "watchdog": {"pause_secs": secs}})
    one.session.calls_python = calls_python

    def long(step: int) -> None:
        if step == 16:
            one.ask(Request.PAUSE)
            one.timer.now += 600
            one.guard.serve()

    one.session.on_step = long
    assert one.train().phase is Phase.PAUSED and not one.outcomes


def test_a_loop_that_was_asked_to_end_is_abandoned_once_it_stands_still(rundir: RunDirectory) -> None:
    """A user's own loop may go on for a while: it is not cut off as long as steps come."""
    one = Guarded(rundir, {"watchdog": {"pause_secs": 60}})
    for _ in range(4):
        one.session.run_until(one.session.step + 1)
        for _ in range(5):  # the loop is at a boundary, whether a step was run or not
            with one.run.run.stepping(is_ending=True):
                one.timer.now += 11
                one.guard.serve()
        assert not one.outcomes
    with one.run.run.stepping(is_ending=True):
        one.timer.now += 5
        one.guard.serve()
    assert "what follows step 4 did not end for 60 s" in one.outcomes[0].why and saved(rundir) == [(4, "pause")]


def test_states_are_held_as_often_as_their_cost_allows(rundir: RunDirectory) -> None:
    """A tenth of a second for each, and a twentieth of a second between two evaluations: one in two hundred."""
    one = Guarded(
        rundir,
        {"max_steps": 600, "evaluate": {"evaluate_steps": 1}, "checkpoint": {"save_model_secs": 0, "minima": False}},
    )
    held, real = list[int](), one.session.snapshot

    def snapshot(kept: Kept = "host") -> object:
        held.append(one.session.step)
        one.timer.now += 0.1
        return real(kept)

    one.session.snapshot = snapshot  # type: ignore[assignment]

    def evaluate(step: int) -> None:
        one.timer.now += 0.05

    one.meanwhile = evaluate
    one.train()
    assert 5 <= len(held) <= 8 and held[0] == 1


def test_what_changes_the_state_is_reported_once(rundir: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    one = Guarded(rundir)

    def change(step: int) -> None:
        one.timer.now += 10
        one.session.value += 1

    one.meanwhile = change
    one.train()
    reported = [record.message for record in caplog.records if getattr(record, "event", "") == "changes-state"]
    assert len(reported) == 1 and "the evaluation changed the state: the variable 'value'" in reported[0]


def test_what_changes_the_state_is_refused_where_runs_are_to_repeat(rundir: RunDirectory) -> None:
    one = Guarded(rundir, {**KEYS, "deterministic": True, "seed": 1})
    one.meanwhile = lambda step: setattr(one.session, "value", 7.0)
    with pytest.raises(JobError, match="deterministic = true, and the evaluation changed"):
        one.train()
    assert saved(rundir) == []


def test_the_flag_gives_one_request_alone() -> None:
    flag, mirrored = Flag(), list[bool]()
    flag.bind(mirrored.append)
    assert not flag.withdraw(Request.PAUSE) and not flag.wait_for([Request.PAUSE], 0.001)
    flag.raise_for(Request.PAUSE)
    flag.raise_for(Request.TICK)
    assert flag.wait_for([Request.SAVE, Request.PAUSE], 0) and not flag.wait_for([Request.SAVE], 0.001)
    assert flag.withdraw(Request.PAUSE) and flag.is_raised and flag.withdraw(Request.TICK)
    assert mirrored == [False, True, False]


def test_the_guards_thread_looks_when_something_is_asked_for(rundir: RunDirectory) -> None:
    """With real threads: the evaluation waits until the pause in it was served."""
    done = threading.Event()
    one = Guarded(rundir)
    one.guard = LoopGuard(one.run.flag, one.run.run, lambda outcome: done.set(), one.failed.append)
    one.run.run.guarded_by(one.guard)

    def pause(step: int) -> None:
        if step == 10:
            one.run.flag.raise_for(Request.PAUSE)
            assert done.wait(10)

    one.meanwhile = pause
    with one.guard:
        one.train()
    assert one.evaluated == [10, 20, 30, 40], "as the process did not end"
