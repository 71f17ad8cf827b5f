"""How the time of a run was spent."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainerd.cli.commands.training.status import text
from trainerd.rundir.claim import claimed
from trainerd.rundir.goodput import Goodput, Spent
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import LastCheckpoint, Phase, State, read_state


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_phase_has_its_time() -> None:
    clock = Clock()
    reporter = Reporter(State(), [], timer=clock)
    for phase, step, seconds in (
        (Phase.TRAINING, 0, 3.0),  # the time up to here was that of the start
        (Phase.EVALUATING, 50, 5.0),
        (Phase.TRAINING, 50, 2.0),
        (Phase.PAUSING, 70, 4.0),
        (Phase.PAUSED, 70, 1.0),
    ):
        clock.now += seconds
        reporter.update(phase=phase, step=step)
    found = reporter.state.goodput
    assert found.seconds == {"starting": 3.0, "training": 9.0, "evaluating": 2.0, "saving": 1.0}
    assert found.percent() == {"training": 60.0, "saving": 6.7, "evaluating": 13.3, "starting": 20.0}


def test_steps_that_are_trained_again_are_counted_exactly() -> None:
    found = Goodput(known_until=150)
    for first, last in ((100, 120), (120, 160), (160, 200)):
        found = found.after_training(first, last, 4.0).after_steps(first, last)
    assert found.steps_again == 50
    assert found.seconds == pytest.approx({"trained again": 4.0 + 3.0, "training": 1.0 + 4.0})


@given(st.dictionaries(st.sampled_from(list(Spent)), st.floats(0.001, 1e9), min_size=1))
def test_the_shares_add_up(seconds: dict[str, float]) -> None:
    shares = Goodput(seconds).percent()
    assert round(sum(shares.values()), 6) == 100.0 and all(share >= 0 for share in shares.values())
    assert Goodput().percent() == {}


@pytest.mark.parametrize(
    ("left", "kind", "known"),
    [
        (Phase.PAUSED, "paused", 0),
        (Phase.TRAINING, "down", 40),
        (Phase.FAILED, "down", 40),
        (Phase.FINISHED, "paused", 0),
    ],
)
def test_the_time_without_a_process_is_that_of_its_end(tmp_path: Path, left: Phase, kind: str, known: int) -> None:
    rundir = RunDirectory(tmp_path)
    with claimed(rundir, "job") as reporter:
        reporter.update(phase=left, step=40)
        at = reporter.state.at
    state = read_state(rundir.state)
    assert state is not None
    state.__class__(**{**state.__dict__, "at": at - 1000.0}).write(rundir.state)
    with claimed(rundir, "job") as reporter:
        found = reporter.state.goodput
        assert found.seconds[kind] == pytest.approx(1000.0, abs=60) and found.known_until == known
        assert f"{kind} " in text(reporter.state, True)


def test_what_is_trained_again_after_a_rollback_was_not_lost(tmp_path: Path) -> None:
    found = State(Phase.PAUSED, step=90, goodput=Goodput(known_until=80))
    back = found.at_checkpoint(LastCheckpoint(10, "", "request", 0.1, 1, 1.0), {}, {}, Phase.PAUSED)
    assert back.goodput.after_steps(10, 50).steps_again == 0
    assert found.goodput.after_steps(10, 50).steps_again == 40


def test_a_clock_that_was_set_back_takes_nothing_away(tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path)
    rundir.create()
    State(Phase.PAUSED, at=4e9, goodput=Goodput({"training": 5.0})).write(rundir.state)
    with claimed(rundir, "job") as reporter:
        assert reporter.state.goodput.seconds == {"training": 5.0}
