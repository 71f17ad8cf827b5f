"""What changes a run that trains: a number is set, and a bad turn is taken back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fake import FakeSession, FakeSnapshot
from tests.unit.conftest import Cli, ScriptedSession
from tests.unit.test_loop import Life, saved
from trainerd.checkpoints import manifest
from trainerd.checkpoints.lineage import BACK, SET, SKIP, Change
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.schema import TroubleConfig
from trainerd.errors import ConfigError, JobError, UsageError
from trainerd.job.settable import Number
from trainerd.loop.changes.trouble import bad_turn
from trainerd.loop.contract import Steps
from trainerd.loop.flag import Request
from trainerd.loop.minima.valleys import Valleys
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.requests import set_requests
from trainerd.rundir.state import Phase


def steered(
    rundir: RunDirectory, steps: int = 50, loss: Callable[[int], float] = lambda step: 1.0, **keys: Any
) -> Life:
    keys = {"max_steps": steps, "checkpoint": {"save_model_steps": 10, "keep_last": 99}, **keys}
    return Life(rundir, keys, ScriptedSession(loss=loss), steered=True)


# ---------------------------------------------------------------------- numbers


def ask(life: Life, rundir: RunDirectory, line: str) -> Callable[[], None]:
    def write() -> None:
        rundir.set_request.write_text(line)
        life.flag.raise_for(Request.SET)

    return write


def test_a_number_is_set_at_that_boundary_and_saved(rundir: RunDirectory) -> None:
    life = steered(rundir)
    line = json.dumps({"values": {"value": 1000.0}, "id": "an id"})
    life.at_step(15, ask(life, rundir, line))
    life.train()
    assert life.session.value == 1000.0 + 2 * 35
    assert dict(saved(rundir))[15] == "set"
    for step in (15, 20, 50):
        assert manifest.read(rundir.manifest(step)).lineage == (Change(SET, 15, 1000.0, "value"),)
    assert manifest.read(rundir.manifest(10)).lineage == ()
    answers = [state.answer for state in life.states if state.answer is not None]
    assert answers[0].ids == ["an id"] and answers[0].step == 15 and not rundir.set_request.exists()


def test_a_number_that_is_set_twice_with_one_id_is_set_once(rundir: RunDirectory) -> None:
    life = steered(rundir)
    line = json.dumps({"values": {"value": 1000.0}, "id": "an id"}) + "\n"
    asks = {15: line, 25: line, 35: line.replace("an id", "another")}
    life.session.on_step = lambda step: ask(life, rundir, asks.pop(step))() if step in asks else None
    life.train()
    assert life.session.value == 1000.0 + 2 * 15
    assert [each.step for each in manifest.read(rundir.manifest(50)).lineage] == [15, 35]


def test_a_number_that_is_set_at_a_step_that_is_saved_is_saved_again(rundir: RunDirectory) -> None:
    life = steered(rundir)
    life.at_step(20, ask(life, rundir, "value=7"))
    life.train()
    again = FakeSession()
    again.restore(rundir.prefix(20))
    assert again.value == 7.0 and dict(saved(rundir))[20] == "set"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("speed=3", "no number 'speed' to set. It has scheduled, value."),
        ("scheduled=3", "scheduled cannot be set: it follows a schedule"),
        ("value=-2e6", "value must be at least -1e+06, and -2e+06 was given."),
        ("value=1 speed=3", "no number 'speed'"),
    ],
)
def test_what_cannot_be_set_changes_nothing_and_is_reported(rundir: RunDirectory, line: str, says: str) -> None:
    life = steered(rundir)
    life.at_step(15, ask(life, rundir, line))
    assert life.train().phase is Phase.FINISHED
    assert life.session.value == 100.0
    assert any(says in warning for warning in life.states[-1].warnings)


@pytest.mark.parametrize("said", ["value", "value=", "=3", "value=much", "value=nan", "value=inf"])
def test_a_number_is_a_name_and_a_number(rundir: RunDirectory, said: str) -> None:
    with pytest.raises(UsageError, match="expected NAME=NUMBER"):
        set_requests.parse(said)
    rundir.set_request.write_text(f"{said}\na=1 b=2\n{{}}\n[[\n")
    assert [request.values for request in set_requests.take(rundir)] == [{"a": 1.0, "b": 2.0}]


def test_the_command_needs_a_run_that_trains(cli: Cli) -> None:
    Path("run").mkdir()
    Path("run/trainerd.log").touch()
    code, printed = cli("set", "learning_rate=1e-4", "--logdir", "./run")  # a name would be that of other tests' runs
    assert code == 69 and "nothing trains" in printed
    code, printed = cli("set", "learning_rate", "--logdir", "./run")
    assert code == 64 and "NAME=NUMBER" in printed


# ---------------------------------------------------------------------- trouble, pure


def rows(first: int, *losses: float) -> Steps:
    return Steps(first, ("loss",), np.array(losses, np.float64).reshape(-1, 1))


def known(average: float = 1.0, deviation: float = 0.1) -> Valleys:
    return Valleys(count=10_000, average=average, square=average**2 + deviation**2)


@pytest.mark.parametrize(
    ("losses", "config", "expected"),
    [
        ([1.0, math.nan], {}, (12, 12, "stop")),
        ([math.inf, math.nan], {"on_nan": "skip"}, (11, 12, "skip")),
        ([1.0, math.nan, 1.0], {}, (12, 13, "stop")),  # workers look together after some steps, not after each
        ([1.0, 2.9, 1.0], {"on_spike": "rollback"}, None),
        ([1.0, 3.1, 1.0], {"on_spike": "rollback"}, (12, 12, "rollback")),
        ([1.0, 9.0, 1.0, 8.0, 1.0], {"on_spike": "skip"}, (12, 14, "skip")),
        ([1.0, 9.0], {}, None),
        ([-50.0, 1.0], {"on_spike": "stop"}, None),
    ],
)
def test_what_is_a_bad_turn(losses: list[float], config: dict[str, Any], expected: tuple[int, int, str] | None) -> None:
    found = bad_turn(rows(11, *losses), known(), TroubleConfig(**config), 100, stops_on_nan=True)
    assert (None if found is None else (found.first, found.last, found.action)) == expected


def test_before_much_is_known_nothing_is_a_jump() -> None:
    spikes = TroubleConfig(on_spike="stop")
    assert bad_turn(rows(1, 1e9), Valleys(), spikes, 100, stops_on_nan=True) is None
    assert bad_turn(Steps.unmeasured(5, 3), known(), spikes, 100, stops_on_nan=True) is None


@pytest.mark.parametrize("draw", ["normal", "laplace", "falling"])
def test_noise_is_no_jump(draw: str) -> None:
    """No false alarm in a million steps; the noise of the loss is as large as half of it."""
    random, valleys, config = np.random.default_rng(1), Valleys(), TroubleConfig(on_spike="stop")
    for start in range(0, 1_000_000, 1000):
        losses = 1.0 + 0.5 * (random.laplace(size=1000) if draw == "laplace" else random.normal(size=1000))
        if draw == "falling":
            losses += 10.0 * np.exp(-(start + np.arange(1000)) / 50_000)
        assert bad_turn(rows(start + 1, *losses), valleys, config, 100, stops_on_nan=True) is None
        valleys = valleys.seen(losses, 100)


# ---------------------------------------------------------------------- trouble, in a run


def test_a_bad_batch_is_skipped_and_the_lineage_names_it(rundir: RunDirectory) -> None:
    life = steered(rundir, trouble={"on_nan": "skip"})
    life.session.loss = lambda step: math.nan if step == 37 and not life.session.skipped else 1.0
    assert life.train().phase is Phase.FINISHED
    assert life.session.skipped == [(36, 1)] and life.session.value == 100.0
    lineage = manifest.read(rundir.manifest(50)).lineage
    assert [(each.kind, each.step, each.value) for each in lineage] == [(BACK, 30, 37), (SKIP, 36, 1)]
    assert "step 37" in lineage[0].why and dict(saved(rundir))[30] == "trouble"
    assert lineage[1].why.endswith("; elements 0"), "the session tells them"


def test_if_the_batch_after_a_skip_is_bad_too_it_is_skipped_as_well(rundir: RunDirectory) -> None:
    life = steered(rundir, trouble={"on_nan": "skip"})
    life.session.loss = lambda step: math.nan if step == 37 and len(life.session.skipped) < 3 else 1.0
    assert life.train().phase is Phase.FINISHED
    assert life.session.skipped == [(36, 1), (36, 1), (36, 1)], "once in the first attempt, and twice in the second"
    lineage = manifest.read(rundir.manifest(50)).lineage
    assert [(each.kind, each.step) for each in lineage] == [(BACK, 30), (SKIP, 36), (BACK, 30), (SKIP, 36)]
    assert ["attempt 1" in each.why for each in lineage if each.kind == SKIP] == [True, False]


def test_a_skip_that_lies_ahead_survives_a_pause(rundir: RunDirectory) -> None:
    first = steered(rundir, trouble={"on_nan": "skip"})
    bad = list[int]()

    def loss(step: int) -> float:
        if bad:
            first.flag.raise_for(Request.PAUSE)
        if step == 37:
            bad.append(step)
        return math.nan if step == 37 else 1.0

    first.session.loss = loss
    assert first.train().phase is Phase.PAUSED and first.session.step == 31 and first.session.skipped == []
    second = steered(rundir, trouble={"on_nan": "skip"})
    second.train()
    assert second.session.skipped == [(36, 1)]


def test_the_batch_right_after_a_checkpoint_is_skipped_too(rundir: RunDirectory) -> None:
    life = steered(rundir, trouble={"on_nan": "skip"})
    life.session.loss = lambda step: math.nan if step == 31 and not life.session.skipped else 1.0
    assert life.train().phase is Phase.FINISHED
    assert life.session.skipped == [(30, 1)]
    again = steered(rundir, 60)
    again.train()
    assert again.session.skipped == [], "it was done before the checkpoint"


def test_a_run_goes_back_so_often_and_then_stops(rundir: RunDirectory) -> None:
    life = steered(
        rundir, loss=lambda step: math.nan if step == 37 else 1.0, trouble={"on_nan": "rollback", "attempts": 2}
    )
    with pytest.raises(
        JobError, match=r"the loss became nan in step 37, after the run had gone back to step 30 2 times"
    ):
        life.train()
    assert [step for step, _ in saved(rundir)] == [30, 20, 10, 0]


def test_without_a_checkpoint_there_is_nothing_to_go_back_to(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = steered(rundir, loss=lambda step: math.nan if step == 7 else 1.0, trouble={"on_nan": "rollback"})
    monkeypatch.setattr(life.run.store.space, "has", lambda needed: False)
    with pytest.raises(JobError, match=r"step 7, and there is no checkpoint to go back to"):
        life.train()
    assert rundir.steps() == []


def test_a_run_that_may_go_back_has_a_checkpoint_from_its_beginning(rundir: RunDirectory) -> None:
    life = steered(rundir, loss=lambda step: math.nan if step == 7 else 1.0, trouble={"on_nan": "skip"})
    life.session.loss = lambda step: math.nan if step == 7 and not life.session.skipped else 1.0
    assert life.train().phase is Phase.FINISHED
    assert life.session.skipped == [(6, 1)] and dict(saved(rundir))[0] == "trouble"


def test_learning_rates_are_lowered_at_each_rollback(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"learning_rate": 0.8, "critic.learning_rate": 0.4}
    others = {"value": Number(1.0), "a.learning_rate": Number(1.0, fixed="it follows a schedule")}

    def there(self: FakeSession) -> dict[str, Number]:
        return {**{name: Number(value) for name, value in rates.items()}, **others}

    monkeypatch.setattr(FakeSession, "numbers", there)
    monkeypatch.setattr(FakeSession, "assign", lambda self, name, value: rates.update({name: value}))
    life = steered(rundir, trouble={"on_nan": "rollback"})
    life.session.loss = lambda step: math.nan if step == 37 and rates["learning_rate"] > 0.3 else 1.0
    assert life.train().phase is Phase.FINISHED
    assert rates == {"learning_rate": 0.2, "critic.learning_rate": 0.1}
    lineage = manifest.read(rundir.manifest(50)).lineage
    assert [each.kind for each in lineage] == [BACK, SET, SET, BACK, SET, SET]


def test_a_rollback_raises_no_learning_rate_that_is_below_its_minimum(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assigned = list[float]()
    monkeypatch.setattr(FakeSession, "numbers", lambda self: {"learning_rate": Number(0.8, minimum=1.0)})
    monkeypatch.setattr(FakeSession, "assign", lambda self, name, value: assigned.append(value))
    life = steered(rundir, trouble={"on_nan": "rollback"})
    life.session.loss = lambda step: math.nan if step == 37 and not assigned else 1.0
    assert life.train().phase is Phase.FINISHED and assigned == [0.8]


def test_a_config_says_what_may_be_done(rundir: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=r"trouble\.on_nan"):
        steered(rundir, trouble={"on_nan": "forget"})


def test_what_lies_ahead_in_the_lineage_is_done_again(rundir: RunDirectory) -> None:
    """As `trainerd prove` begins a run, and as a kill leaves a skip."""
    ahead = (Change(SET, 5, 1.0, "value"), Change(SET, 15, 1000.0, "value"), Change(SKIP, 20, 3), Change(BACK, 30, 1))
    CheckpointStore(rundir).publish(FakeSnapshot(10, 20.0), About("begin", lineage=ahead))
    life = steered(rundir)
    life.train()
    assert life.session.value == 1000.0 + 2 * 35 and life.session.skipped == [(20, 3)]
    reported = manifest.read(rundir.manifest(50)).lineage
    assert reported == (*ahead[:2], ahead[2].with_elements([0, 1, 2]), ahead[3])
    assert str(reported[2]) == "step 20: 3 batches skipped (elements 0, 1, 2)"
    again = steered(rundir, 60)
    again.train()
    assert again.session.value == 1090.0 and again.session.skipped == []
