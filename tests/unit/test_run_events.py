"""What happened to a run: what is noted, what survives, and how it is shown."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from trainerd.cli.app import cli
from trainerd.errors import NotRunningError, StorageError
from trainerd.history.story import Kind as Happened
from trainerd.history.story import story_of
from trainerd.rundir import run_events
from trainerd.rundir.claim import claimed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Event, Kind, add, read
from trainerd.rundir.state import Phase, State
from trainerd.watch.event_reader import EventReader


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(tmp_path / "run")
    found.create()
    return found


def kinds(rundir: RunDirectory) -> list[tuple[Kind, int | None]]:
    return [(event.kind, event.step) for event in read(rundir)]


def test_a_start_and_an_end_are_noted_once(rundir: RunDirectory) -> None:
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.TRAINING, step=5)
        reporter.update(phase=Phase.PAUSED, ended="paused on request")
        reporter.update(phase=Phase.PAUSED, warnings=["hot"])
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.FAILED, step=7, error="my own\nmistake")
    assert kinds(rundir) == [(Kind.START, None), (Kind.PAUSE, 5), (Kind.START, None), (Kind.FAIL, 7)]
    assert [event.said for event in read(rundir)][1::2] == ["paused on request", "my own"]


def test_the_events_of_an_old_run_are_read_and_the_next_start_renames_them(rundir: RunDirectory) -> None:
    """`events.jsonl` is among what programs find with `glob("events*")`, and take for event files of TensorBoard."""
    old = rundir.path / "events.jsonl"
    old.write_text('\n{"at": 3.0, "kind": "start", "step": null, "said": ""}')
    reader = EventReader(rundir)
    reader.look()
    add(rundir, Kind.ROLLBACK, step=4)
    assert kinds(rundir) == [(Kind.START, None), (Kind.ROLLBACK, 4)] and rundir.events == old
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.PAUSED, step=5)
    assert kinds(rundir) == [(Kind.START, None), (Kind.ROLLBACK, 4), (Kind.START, None), (Kind.PAUSE, 5)]
    assert not list(rundir.path.glob("events*"))
    reader.look()
    assert reader.counts == {"start": 2, "rollback": 1, "pause": 1}, "each is counted once"


def test_a_start_that_finds_the_run_finished_is_no_news(rundir: RunDirectory) -> None:
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.TRAINING, step=5)
        reporter.update(phase=Phase.FINISHED, ended="the target is reached")
        needed = reporter.state.memory_bytes
    before = read(rundir)
    for _ in range(2):
        with claimed(rundir, "jobs:job") as reporter:
            reporter.update(phase=Phase.FINISHED, ended="the target is reached")
            assert reporter.state.memory_bytes == needed
    assert read(rundir) == before and len(before) == 2
    State(Phase.PAUSED, step=5, at=1.0).write(rundir.state)
    with claimed(rundir, "jobs:job") as reporter:  # a target that a paused run has reached already is news
        reporter.update(phase=Phase.FINISHED, step=5, ended="the target is reached")
    assert kinds(rundir)[2:] == [(Kind.START, None), (Kind.FINISH, 5)]


def test_the_next_start_tells_of_a_kill_and_of_a_reboot(rundir: RunDirectory) -> None:
    State(Phase.TRAINING, step=9, at=psutil.boot_time() - 5).write(rundir.state)
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.STARTING)
    assert kinds(rundir) == [(Kind.KILL, 9), (Kind.REBOOT, 9)]
    assert "while training, after step 9" in read(rundir)[0].said


def test_a_torn_line_costs_that_event_alone(rundir: RunDirectory) -> None:
    add(rundir, Kind.PAUSE, step=1)
    with rundir.events.open("ab") as file:
        file.write(b'\n{"at": 3, "kind": "pa')
    add(rundir, Kind.PAUSE, step=2)
    with rundir.events.open("ab") as file:
        file.write(b'\n[]\n{"at": 1, "kind": "unheard of"}\n\xff')
    assert kinds(rundir) == [(Kind.PAUSE, 1), (Kind.PAUSE, 2)]


def test_the_file_stays_small_and_keeps_the_newest(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_events, "LIMIT_BYTES", 4000)
    for step in range(300):
        add(rundir, Kind.CHANGE, "x" * 2000 if step == 0 else "", step=step)
    steps = [event.step or 0 for event in read(rundir)]
    assert rundir.events.stat().st_size < 5000
    assert steps[-1] == 299 and steps == list(range(steps[0], 300))


def test_evaluations_are_dropped_first(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_events, "LIMIT_BYTES", 4000)
    add(rundir, Kind.KILL, step=0)
    for step in range(1, 300):
        add(rundir, Kind.EVALUATION if step % 2 else Kind.BEST, "val_loss 0.5", step=step)
    assert kinds(rundir)[0] == (Kind.KILL, 0) and kinds(rundir)[-1] == (Kind.EVALUATION, 299)
    assert len(kinds(rundir)) < 100
    assert rundir.events.stat().st_size < 5000


def test_what_cannot_be_written_disturbs_nothing(rundir: RunDirectory, tmp_path: Path) -> None:
    State(Phase.PAUSED, step=3).write(rundir.state)
    rundir.events.mkdir()
    add(rundir, Kind.PAUSE)
    assert "paused" in CliRunner().invoke(cli, ["status", str(rundir.path)]).output
    assert isinstance(CliRunner().invoke(cli, ["events", str(rundir.path)]).exception, StorageError)
    add(RunDirectory(tmp_path / "nowhere"), Kind.PAUSE)
    assert not (tmp_path / "nowhere").exists()


def test_the_command_shows_them(rundir: RunDirectory) -> None:
    now = time.time()
    add(rundir, Kind.START, "jobs:job", at=now - 7200)
    add(rundir, Kind.SAVE_FAILED, "no room\x1b[2J", step=1200, at=now)

    def said(*arguments: str) -> str:
        return CliRunner().invoke(cli, ["events", str(rundir.path), *arguments]).output

    both, last = said().splitlines(), said("--since", "1h").splitlines()
    assert len(both) == 2 and "start" in both[0] and both[1:] == last
    assert "save failed  step 1,200  no room" in last[0] and "\x1b" not in last[0]
    [found] = json.loads(said("--since", "90m", "--json"))
    assert (found["kind"], found["step"]) == ("save failed", 1200)
    assert "is no span of time" in said("--since", "yesterday")


def test_evaluations_do_not_hide_the_other_events(rundir: RunDirectory) -> None:
    add(rundir, Kind.START, "jobs:job")
    for step in range(400):
        add(rundir, Kind.EVALUATION, step=step)
    add(rundir, Kind.PAUSE, step=400)

    def said(*arguments: str) -> str:
        return CliRunner().invoke(cli, ["events", str(rundir.path), *arguments], catch_exceptions=False).stdout

    done = CliRunner().invoke(cli, ["events", str(rundir.path)])
    assert "352 earlier events" in done.stderr and "351 evaluation, 1 start" in done.stderr
    shown = done.stdout.splitlines()
    assert len(shown) == 50 and "pause" in shown[-1]
    assert [line.split()[2] for line in said("--kind", "start", "--kind", "pause").splitlines()] == ["start", "pause"]
    assert len(said("-n", "60").splitlines()) == 60
    assert len(json.loads(said("--json"))) == 402 and len(json.loads(said("--json", "-n", "3"))) == 3
    with pytest.raises(NotRunningError, match="no events of kind rollback"):
        said("--kind", "rollback")


def test_history_shows_pauses_and_crashes_whose_checkpoints_are_gone(rundir: RunDirectory) -> None:
    for event in (
        Event(1, Kind.PAUSE, 10),
        Event(2, Kind.KILL, 35),
        Event(3, Kind.RESUME, 20),
        Event(4, Kind.PAUSE, 40),
        Event(5, Kind.ROLLBACK, 30),
        Event(6, Kind.FAIL, 33, "my own mistake"),
    ):
        add(rundir, event.kind, event.said, step=event.step, at=event.at)
    moments = [(each.kind, each.step, each.said) for each in story_of(rundir).moments]
    assert moments == [
        (Happened.PAUSE, 10, ""),
        (Happened.CRASH, 20, "lost: 15 steps"),
        (Happened.CRASH, 33, "my own mistake"),
    ]
