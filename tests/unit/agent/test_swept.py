"""Points of sweeps in the queue: what is queued, and what trains on to the next rung."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import Cli
from tests.unit.test_sweeps import project, trained
from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import Stage
from trainerd.agent.queue_folder import QueueFolder
from trainerd.agent.starter import AgentCommand
from trainerd.agent.swept import Promotions
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase
from trainerd.sweeps.sweep import Sweep

ASKED = ("--set", "params.rate=0.1,0.2,0.3,0.4", "--halve", "loss", "--rungs", "10,20", "--factor", "2")


@pytest.fixture
def sweep(cli: Cli, tmp_path: Path) -> Sweep:
    """A sweep of four points, which are queued."""
    project(tmp_path)
    code, printed = cli("sweep", ".", *ASKED, "--name", "s", "--priority", "3", "--retries", "1")
    assert code == 0 and "added 4 runs to the queue" in printed, printed
    return Sweep.read(tmp_path / "sweeps" / "s")


def steps(queue: QueueFolder) -> Mapping[str, int | None]:
    return {name: entry.max_steps for name, entry in queue.read().entries.items()}


def test_all_points_are_queued_up_to_the_first_rung(sweep: Sweep) -> None:
    entries = QueueFolder().read().entries
    assert list(entries) == ["s-001", "s-002", "s-003", "s-004"]
    expected = {"priority": 3, "retries": 1, "max_steps": 10, "sweep": str(sweep.folder)}
    for entry in entries.values():
        assert {name: getattr(entry, name) for name in expected} == expected
        assert RunDirectory(Path(entry.logdir)).path.parent == sweep.folder


def test_the_better_half_trains_on_once_all_are_there(sweep: Sweep) -> None:
    queue = QueueFolder()
    promotions = Promotions(queue, clock=lambda: 1e10)
    stages = dict.fromkeys(queue.read().entries, Stage.DONE)
    points = {point.name: point for point in sweep.points()}
    for name in ("001", "002", "003"):
        trained(points[name].rundir, 10, {10: float(name)})
    promotions.promote(queue.read().entries, stages | {"s-004": Stage.TRAINING}, 2)
    assert set(steps(queue).values()) == {10}, "one is missing"
    trained(points["004"].rundir, 5, {5: 0.1}, Phase.FAILED)
    promotions.promote(queue.read().entries, stages | {"s-004": Stage.WAITING}, 2)
    assert set(steps(queue).values()) == {10}, "one is tried again"
    promotions.promote(queue.read().entries, stages | {"s-004": Stage.FAILED}, 2)
    assert steps(queue) == {"s-001": 20, "s-002": 20, "s-003": 10, "s-004": 10}
    assert queue.read().entries["s-001"].since == 1e10, "it waits for its turn again"
    before = queue.stamp()
    Promotions(queue).promote(queue.read().entries, stages | {"s-004": Stage.FAILED}, 2)
    assert queue.stamp() == before, "a new agent finds it done"


def test_a_point_that_a_person_removes_while_it_waits_is_out(sweep: Sweep) -> None:
    queue = QueueFolder()
    promotions, stages = Promotions(queue), dict.fromkeys(queue.read().entries, Stage.DONE)
    for point in sweep.points()[:3]:
        trained(point.rundir, 10, {10: float(point.name)})
    promotions.promote(queue.read().entries, stages | {"s-004": Stage.WAITING}, 2)
    assert set(steps(queue).values()) == {10}
    queue.remove("s-004")
    del stages["s-004"]
    promotions.promote(queue.read().entries, stages, 2)
    assert steps(queue) == {"s-001": 20, "s-002": 20, "s-003": 10}


def test_a_sweep_that_is_over_continues_when_a_person_adds_a_rung(sweep: Sweep) -> None:
    queue = QueueFolder()
    promotions, stages = Promotions(queue), dict.fromkeys(queue.read().entries, Stage.DONE)
    for point in sweep.points():
        trained(point.rundir, 10, {10: float(point.name)})
    promotions.promote(queue.read().entries, stages, 2)
    for point in sweep.points()[:2]:
        trained(point.rundir, 20, {20: float(point.name)})
    promotions.promote(queue.read().entries, stages, 2)
    assert steps(queue) == {"s-001": 20, "s-002": 20, "s-003": 10, "s-004": 10}
    file = sweep.folder / "sweep.toml"
    file.write_text(file.read_text().replace("20]", "20, 50]"))
    promotions.promote(queue.read().entries, stages, 2)
    assert steps(queue)["s-001"] == 50


def test_a_sweep_that_cannot_be_read_stops_nothing(sweep: Sweep, caplog: pytest.LogCaptureFixture) -> None:
    (sweep.folder / "sweep.toml").write_text("no TOML")
    queue = QueueFolder()
    entries = queue.read().entries
    Promotions(queue).promote(entries, dict.fromkeys(entries, Stage.DONE), 1)
    assert "cannot continue" in caplog.text and set(steps(queue).values()) == {10}


def test_a_sweep_continues_when_the_config_of_a_point_is_mended(sweep: Sweep) -> None:
    queue, now = QueueFolder(), 0.0
    promotions, stages = Promotions(queue, timer=lambda: now), dict.fromkeys(queue.read().entries, Stage.DONE)
    for point in sweep.points():
        trained(point.rundir, 10, {10: float(point.name)})
    file = sweep.folder / "003.toml"
    sound = file.read_text()
    file.write_text("no TOML")
    promotions.promote(queue.read().entries, stages, 2)
    file.write_text(sound)
    for now, step in ((14.0, 10), (16.0, 20)):
        assert list(promotions.troubles) == [str(sweep.folder)]
        promotions.promote(queue.read().entries, stages, 2)
        assert steps(queue)["s-001"] == step, now
    assert not promotions.troubles


def test_a_choice_of_points_that_fails_is_made_again_later_and_later(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    project(tmp_path)
    asked = ("--set", "params.rate=0.1,0.2", "--optuna", "2", "--metric", "loss", "--name", "o")
    assert cli("sweep", ".", *asked)[0] == 0
    queue, now, started = QueueFolder(), 0.0, list[AgentCommand]()

    def fails(words: object, folder: str) -> AgentCommand:
        started.append(start(["sh", "-c", "echo more; echo trainerd: no disk; exit 74"], folder))
        return started[-1]

    start = AgentCommand.start
    monkeypatch.setattr(AgentCommand, "start", fails)
    promotions = Promotions(queue, timer=lambda: now)
    entries = queue.read().entries
    counts = {0.0: 1, 1.0: 1, 14.0: 1, 16.0: 2, 17.0: 2, 46.0: 2, 48.0: 3, 49.0: 3, 110.0: 4}
    for now, count in counts.items():
        promotions.promote(entries, dict.fromkeys(entries, Stage.TRAINING), 1)
        assert len(started) == count, now
        started[-1].process.wait()
    [said] = promotions.troubles.values()
    assert said == f"the sweep {tmp_path / 'sweeps' / 'o'} gets no new points: no disk"
    promotions.promote({}, {}, 1)
    assert not promotions.troubles and all(each.output.closed for each in started)


def test_a_sweep_whose_points_have_no_metric_has_no_winner(sweep: Sweep, caplog: pytest.LogCaptureFixture) -> None:
    queue = QueueFolder()
    entries = queue.read().entries
    Promotions(queue).promote(entries, dict.fromkeys(entries, Stage.FAILED), 1)
    assert f"the sweep {sweep.folder} has no winner: `trainerd sweep show` shows its metrics" in caplog.text


def test_points_that_are_queued_are_not_queued_again(cli: Cli, sweep: Sweep) -> None:
    assert "added 0 runs" in cli("sweep", "next", "sweeps/s", "--queue")[1]
    QueueFolder().remove("s-002")
    assert "added 1 run " in cli("sweep", "next", "sweeps/s", "--queue")[1]
    found = QueueFolder().read().entries["s-002"]
    assert found.priority == 3 and found == replace(found, max_steps=10, retries=1)
    assert isinstance(found, QueueEntry)
