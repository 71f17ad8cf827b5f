"""What a save costs, and how often one is made: on a clock of the test."""

from __future__ import annotations

import pytest

from trainerd.loop.autosave import MAX_SECS, Cadence, SaveBudget
from trainerd.loop.schedule import ScheduleMark

FIRST_SECS, MIN_SECS = 10.0, 1.0


def budget(max_overhead: float = 0.01) -> SaveBudget:
    return SaveBudget(max_overhead, FIRST_SECS, MIN_SECS)


def saved(cadence: Cadence, kind: SaveBudget, *, at: float, seconds: float, steps: int, per_step: float = 0.1) -> float:
    """Train at so many seconds a step until `at`, and save while so many steps are done in so many seconds."""
    began = ScheduleMark(cadence.quiet_since.step + round((at - cadence.quiet_since.now) / per_step), at)
    cadence.begins(kind, began)
    assert cadence.is_saving
    cadence.ended(ScheduleMark(began.step + steps, at + seconds), is_made=True)
    assert not cadence.is_saving
    return kind.secs


def test_before_anything_is_measured_it_is_a_guess() -> None:
    assert budget().secs == FIRST_SECS


@pytest.mark.parametrize(
    ("seconds", "steps", "overhead", "secs"),
    [
        (2.0, 17, 0.01, 30.0),  # 20 steps would have been done: 0.3 s were lost
        (2.0, 10, 0.1, 10.0),
        (2.0, 20, 0.01, MIN_SECS),  # nothing was lost
        (2.0, 30, 0.01, MIN_SECS),  # the steps became faster, whatever the reason
        (100.0, 0, 0.01, MAX_SECS),
        (2.0, 15, 0.0, 0.0),  # none are made
    ],
)
def test_the_interval_keeps_the_cost_under_its_share(seconds: float, steps: int, overhead: float, secs: float) -> None:
    cadence, kind = Cadence(ScheduleMark(0, 0.0)), budget(overhead)
    for number in range(12):
        found = saved(cadence, kind, at=1000.0 * (number + 1), seconds=seconds, steps=steps)
    assert found == pytest.approx(secs, rel=0.01)


def test_the_first_save_counts_half_beside_what_is_expected() -> None:
    """It takes longer than those after it: memory is new, files are new."""
    assert saved(Cadence(ScheduleMark(0, 0.0)), budget(), at=10.0, seconds=0.3, steps=0) == pytest.approx(20.0)
    assert saved(Cadence(ScheduleMark(0, 0.0)), budget(), at=10.0, seconds=9.0, steps=0) == pytest.approx(25.0)


def test_one_measurement_that_is_off_counts_half() -> None:
    cadence, kind = Cadence(ScheduleMark(0, 0.0)), budget()
    saved(cadence, kind, at=10.0, seconds=1.0, steps=9)
    assert kind.secs == pytest.approx(10.0)
    assert saved(cadence, kind, at=30.0, seconds=1.1, steps=8) == pytest.approx(20.0)


def test_a_process_that_was_stopped_during_a_save_does_not_stop_saving() -> None:
    cadence, kind = Cadence(ScheduleMark(0, 0.0)), budget()
    saved(cadence, kind, at=10.0, seconds=0.1, steps=0)
    assert saved(cadence, kind, at=30.0, seconds=5000.0, steps=8) == pytest.approx(25.0)
    assert saved(cadence, kind, at=9000.0, seconds=0.1, steps=0) == pytest.approx(17.5)


def test_each_kind_of_save_has_its_own_cost_beside_one_rate_of_the_steps() -> None:
    cadence, disk, memory = Cadence(ScheduleMark(0, 0.0)), budget(), budget()
    assert saved(cadence, disk, at=10.0, seconds=1.0, steps=7) == pytest.approx(20.0)
    assert saved(cadence, memory, at=20.0, seconds=0.1, steps=0) == pytest.approx(10.0)
    assert disk.secs == pytest.approx(20.0)


def test_a_save_that_failed_reports_nothing() -> None:
    cadence, kind = Cadence(ScheduleMark(0, 0.0)), budget()
    assert saved(cadence, kind, at=10.0, seconds=1.0, steps=7) == pytest.approx(20.0)
    for at in (61.0, 62.0, 63.0):
        cadence.begins(kind, ScheduleMark(round(10 * at), at))
        cadence.ended(ScheduleMark(round(10 * at), at), is_made=False)
    assert not cadence.is_saving and kind.secs == pytest.approx(20.0)


def test_without_a_step_before_nothing_can_be_said() -> None:
    cadence, kind = Cadence(ScheduleMark(5, 3.0)), budget()
    cadence.begins(kind, ScheduleMark(5, 3.0))
    cadence.ended(ScheduleMark(5, 9.0), is_made=True)
    assert kind.secs == FIRST_SECS
