"""What a checkpoint costs, and how often one is made: on a clock of the test."""

from __future__ import annotations

import pytest

from trainerd.loop.autosave import FIRST_SECS, MAX_SECS, MIN_SECS, Cadence
from trainerd.loop.schedule import ScheduleMark


def saved(cadence: Cadence, *, at: float, seconds: float, steps: int, per_step: float = 0.1) -> float:
    """Train at so many seconds a step until `at`, and save while so many steps are done in so many seconds."""
    began = ScheduleMark(cadence.quiet_since.step + round((at - cadence.quiet_since.now) / per_step), at)
    cadence.begins(began)
    assert cadence.is_saving
    cadence.ended(ScheduleMark(began.step + steps, at + seconds))
    assert not cadence.is_saving
    return cadence.secs


def test_before_anything_is_measured_it_is_a_guess() -> None:
    assert Cadence(0.01, ScheduleMark(0, 0.0)).secs == FIRST_SECS


@pytest.mark.parametrize(
    ("seconds", "steps", "overhead", "secs"),
    [
        (2.0, 15, 0.01, 50.0),  # 20 steps would have been done: half a second was lost
        (2.0, 15, 0.1, 5.0),
        (2.0, 20, 0.01, MIN_SECS),  # nothing was lost
        (2.0, 30, 0.01, MIN_SECS),  # the steps became faster, whatever the reason
        (100.0, 0, 0.01, MAX_SECS),
    ],
)
def test_the_interval_keeps_the_cost_under_its_share(seconds: float, steps: int, overhead: float, secs: float) -> None:
    assert saved(Cadence(overhead, ScheduleMark(0, 0.0)), at=10.0, seconds=seconds, steps=steps) == pytest.approx(secs)


def test_one_measurement_that_is_off_counts_half() -> None:
    cadence = Cadence(0.01, ScheduleMark(0, 0.0))
    saved(cadence, at=10.0, seconds=1.0, steps=9)
    assert saved(cadence, at=30.0, seconds=1.1, steps=8) == pytest.approx(20.0)


def test_a_save_that_failed_reports_nothing() -> None:
    cadence = Cadence(0.01, ScheduleMark(0, 0.0))
    assert saved(cadence, at=10.0, seconds=1.0, steps=5) == pytest.approx(50.0)
    for at in (61.0, 62.0, 63.0):
        cadence.begins(ScheduleMark(round(10 * at), at))
        cadence.failed(ScheduleMark(round(10 * at), at))
    assert not cadence.is_saving and cadence.secs == pytest.approx(50.0)


def test_without_a_step_before_nothing_can_be_said() -> None:
    cadence = Cadence(0.01, ScheduleMark(5, 3.0))
    cadence.begins(ScheduleMark(5, 3.0))
    cadence.ended(ScheduleMark(5, 9.0))
    assert cadence.secs == FIRST_SECS
