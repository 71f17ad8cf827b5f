"""The state at a minimum of the loss: held in memory, saved when the loss turns up, kept over a pause and a kill."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest

from tests.fake import FakeSession
from tests.unit.conftest import FakeTime, ScriptedSession, WriterByHand
from tests.unit.test_loop import Life, saved
from trainerd.checkpoints import catalogue, manifest, retention
from trainerd.checkpoints.manifest import Minimum
from trainerd.checkpoints.retention import Point, Policy
from trainerd.checkpoints.snapshot import Kept
from trainerd.history.choice import choose
from trainerd.history.timeline import CheckpointMark, timeline
from trainerd.loop.flag import Request
from trainerd.rundir.paths import RunDirectory

SMOOTHING = 5
# One valley with its lowest loss at step 100, so that the smoothed loss is lowest a few steps later.
VALLEY: Callable[[int], float] = lambda step: 1.0 + abs(step - 100) / 50  # noqa: E731


def run_of(
    rundir: RunDirectory, steps: int, loss: Callable[[int], float] = VALLEY, every: int = 1, **checkpoint: object
) -> Life:
    """A run that comes to a boundary at each so many steps, and looks at the loss there."""
    clock = FakeTime()
    keys = {
        "max_steps": steps,
        "checkpoint": {"save_model_secs": 0, "keep_last": 100, "minima_smoothing_steps": SMOOTHING, **checkpoint},
    }
    life = Life(rundir, keys, session=ScriptedSession(loss=loss), timer=clock)

    def on_step(step: int) -> None:
        clock.now += 1.0
        if step % every == 0:
            life.flag.raise_for(Request.TICK)

    life.session.on_step = on_step
    return life


def lowest_smoothed(loss: Callable[[int], float], steps: int) -> int:
    average, found = 0.0, (math.inf, 0)
    for step in range(1, steps + 1):
        average = loss(1) if step == 1 else average + (loss(step) - average) / SMOOTHING
        found = min(found, (average, step)) if step >= 3 * SMOOTHING else found
    return found[1]


def test_the_state_is_that_of_the_lowest_boundary(rundir: RunDirectory) -> None:
    life = run_of(rundir, 200)
    life.train()
    lowest = lowest_smoothed(VALLEY, 200)
    assert saved(rundir) == [(200, "finish"), (lowest, "minimum")]
    found = manifest.read(rundir.manifest(lowest))
    assert found.metrics["p"] == 2.0 * lowest and found.metrics["loss"] == VALLEY(lowest), "its own figures"
    assert found.minimum is not None and found.minimum.valley == 1 and found.before is None
    restored = FakeSession()
    restored.restore(rundir.prefix(lowest))
    assert (restored.step, restored.value) == (lowest, 2.0 * lowest)
    marks = {entry.step: entry.marks for entry in timeline(rundir)}
    assert CheckpointMark.MINIMUM in marks[lowest] and CheckpointMark.MINIMUM not in marks[200]


def test_the_run_resumes_from_the_newest_checkpoint_not_from_a_minimum_that_was_saved_after_it(
    rundir: RunDirectory,
) -> None:
    life = run_of(rundir, 200, save_model_steps=110)
    life.train()
    assert [step for step, _ in saved(rundir)] == [200, 110, lowest_smoothed(VALLEY, 200)]
    assert life.states[-1].last_checkpoint is not None and life.states[-1].last_checkpoint.step == 200
    assert manifest.read(rundir.manifest(200)).before == 110
    assert rundir.checkpoint_state.read_text().startswith('model_checkpoint_path: "model.ckpt-200"')


def test_a_loss_that_falls_has_no_minimum_and_saves_nothing_more(rundir: RunDirectory) -> None:
    life = run_of(rundir, 200, loss=lambda step: 1.0 / step, save_model_steps=50)
    life.train()
    assert saved(rundir) == [(200, "finish"), (150, "schedule"), (100, "schedule"), (50, "schedule")]
    assert not [entry for entry in timeline(rundir) if CheckpointMark.MINIMUM in entry.marks]


def test_it_can_be_turned_off(rundir: RunDirectory) -> None:
    run_of(rundir, 200, minima=False).train()
    assert saved(rundir) == [(200, "finish")]
    assert manifest.read(rundir.manifest(200)).valleys == {}


@pytest.mark.parametrize("pause", [60, 104, 108, 112, 150])
def test_a_pause_at_any_moment_of_a_valley_keeps_its_minimum(rundir: RunDirectory, pause: int) -> None:
    first = run_of(rundir, 200)
    before = first.session.on_step

    def on_step(step: int) -> None:
        before(step)
        if step == pause:
            first.flag.raise_for(Request.PAUSE)

    first.session.on_step = on_step
    first.train()
    run_of(rundir, 200).train()
    lowest = lowest_smoothed(VALLEY, 200)
    found = [entry.step for entry in timeline(rundir) if CheckpointMark.MINIMUM in entry.marks]
    assert found == [lowest] and (lowest in rundir.steps())
    assert max(rundir.steps()) == 200 and catalogue.resume_order(rundir)[0] == 200


def test_a_kill_after_a_checkpoint_in_the_rise_keeps_the_minimum(rundir: RunDirectory) -> None:
    """What is written at 108 has the lowest boundary written too; the process of 112 never gets to the minimum."""
    life = run_of(rundir, 111, save_model_steps=108)
    life.train()
    lowest = lowest_smoothed(VALLEY, 111)
    assert dict(saved(rundir))[lowest] == "lowest"
    for step in (111,):  # as if it had been killed before its last save
        rundir.manifest(step).unlink()
    run_of(rundir, 200).train()
    assert [entry.step for entry in timeline(rundir) if CheckpointMark.MINIMUM in entry.marks] == [lowest]


def test_a_minimum_that_comes_while_another_save_is_under_way_waits_for_it(rundir: RunDirectory) -> None:
    life = run_of(rundir, 130, save_model_steps=107)
    life.writer.held = True
    before = life.session.on_step

    def on_step(step: int) -> None:
        before(step)
        if step == 125:
            life.writer.release()

    life.session.on_step = on_step
    life.train()
    reasons = dict(saved(rundir))
    assert reasons[107] == "schedule" and lowest_smoothed(VALLEY, 130) in reasons


def test_boundaries_are_looked_at_as_often_as_the_costs_allow(rundir: RunDirectory) -> None:
    """A snapshot that takes a second is taken once in a hundred."""
    life = run_of(rundir, 1000, loss=lambda step: 1.0 / step)
    taken: list[int] = []
    snapshot = life.session.snapshot

    def slow(kept: Kept = "host") -> object:
        taken.append(life.session.step)
        life.timer.now += 1.0  # type: ignore[attr-defined]
        return snapshot(kept)

    life.session.snapshot = slow  # type: ignore[method-assign,assignment]
    life.train()
    looked = [step for step in taken if step < 1000]
    assert len(looked) <= 11 and all(later - earlier >= 98 for earlier, later in itertools.pairwise(looked))


def test_a_boundary_that_is_saved_is_looked_at_whatever_that_costs(rundir: RunDirectory) -> None:
    """Its state is on disk anyway: what is marked as the lowest so far is the lowest of the checkpoints."""
    life = run_of(rundir, 200, lambda step: 1.0 / step, minima_overhead=0.0001, save_model_steps=50)
    snapshot = life.session.snapshot

    def slow(kept: Kept = "host") -> object:
        life.timer.now += 1.0  # type: ignore[attr-defined]
        return snapshot(kept)

    life.session.snapshot = slow  # type: ignore[method-assign,assignment]
    life.train()
    marks = {entry.step: entry.marks for entry in timeline(rundir)}
    assert [step for step in marks if CheckpointMark.LOWEST in marks[step]] == [200]
    assert choose(rundir, "minimum") == 200


def test_the_lowest_of_each_valley_is_kept_and_the_lowest_valleys() -> None:
    """Verdicts, as a table: (step, loss, valley) to what stays of them."""
    points = [
        Point(step, 0.0, {}, None, Minimum(loss, valley))
        for step, loss, valley in ((10, 3.0, 1), (20, 2.0, 1), (30, 5.0, 2), (40, 1.0, 3), (50, 1.5, 3), (60, 4.0, 4))
    ]
    for count, kept in ((0, []), (1, [40]), (2, [20, 40]), (3, [20, 40, 60]), (9, [20, 30, 40, 60])):
        gone = retention.deletable([*points, Point(70)], current=70, policy=Policy(1, keep_minima=count))
        assert sorted({10, 20, 30, 40, 50, 60} - set(gone)) == kept


def test_only_the_lowest_minima_stay_in_the_run(rundir: RunDirectory) -> None:
    waves = lambda step: 2.0 + math.cos(step / 20) - step / 2000  # noqa: E731
    life = run_of(rundir, 900, loss=waves, keep_last=1, keep_minima=2)
    life.train()
    found = [(entry.step, entry.minimum) for entry in timeline(rundir) if CheckpointMark.MINIMUM in entry.marks]
    assert len(found) == 2 and found[0][0] > 500, "each valley is lower than the one before"
    assert len(rundir.steps()) == 3


def test_a_minimum_whose_save_fails_is_reported_and_training_continues(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = run_of(rundir, 200)
    answers = itertools.chain([False, False], itertools.repeat(True))  # asked again once all is deleted that may be
    monkeypatch.setattr(life.run.store.space, "has", lambda needed: next(answers))
    life.train()
    assert max(rundir.steps()) == 200
    assert any("the last save failed" in warning for state in life.states for warning in state.warnings)


def test_the_writer_may_still_write_what_the_loop_has_replaced(rundir: RunDirectory) -> None:
    life = run_of(rundir, 300, loss=lambda step: 2.0 + math.cos(step / 10))
    life.writer = WriterByHand()
    life.train()
    for step in rundir.steps():
        manifest.verify(manifest.read(rundir.manifest(step)), rundir.path)
