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
from trainerd.history.story import MomentKind, story_of
from trainerd.rundir import run_events
from trainerd.rundir.claim import claimed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Event, EventKind, add, read
from trainerd.rundir.state import Phase, State
from trainerd.watch.event_reader import EventReader


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(tmp_path / "run")
    found.create()
    return found


def kinds(rundir: RunDirectory) -> list[tuple[EventKind, int | None]]:
    return [(event.kind, event.step) for event in read(rundir)]


def test_a_start_and_an_end_are_noted_once(rundir: RunDirectory) -> None:
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.TRAINING, step=5)
        reporter.update(phase=Phase.PAUSED, ended="paused on request")
        reporter.update(phase=Phase.PAUSED, warnings=["hot"])
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.FAILED, step=7, error="my own\nmistake")
    assert kinds(rundir) == [
        (EventKind.START, None),
        (EventKind.PAUSE, 5),
        (EventKind.START, None),
        (EventKind.FAIL, 7),
    ]
    assert [event.said for event in read(rundir)][1::2] == ["on request", "my own"]


def test_the_events_of_an_old_run_are_read_and_the_next_start_renames_them(rundir: RunDirectory) -> None:
    """`events.jsonl` is among what programs find with `glob("events*")`, and take for event files of TensorBoard."""
    old = rundir.path / "events.jsonl"
    old.write_text('\n{"at": 3.0, "kind": "start", "step": null, "said": ""}')
    reader = EventReader(rundir)
    reader.read()
    add(rundir, EventKind.ROLLBACK, step=4)
    assert kinds(rundir) == [(EventKind.START, None), (EventKind.ROLLBACK, 4)] and rundir.events == old
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.PAUSED, step=5)
    assert kinds(rundir) == [
        (EventKind.START, None),
        (EventKind.ROLLBACK, 4),
        (EventKind.START, None),
        (EventKind.PAUSE, 5),
    ]
    assert not list(rundir.path.glob("events*"))
    reader.read()
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
    assert kinds(rundir)[2:] == [(EventKind.START, None), (EventKind.FINISH, 5)]


def test_the_next_start_reports_a_kill_and_a_reboot(rundir: RunDirectory) -> None:
    State(Phase.TRAINING, step=9, at=psutil.boot_time() - 5).write(rundir.state)
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.STARTING)
    assert kinds(rundir) == [(EventKind.KILL, 9), (EventKind.REBOOT, 9)]
    assert "while training, without a save, at step 9" in read(rundir)[0].said


def test_the_text_of_an_event_is_short_whoever_wrote_it(rundir: RunDirectory) -> None:
    line = json.dumps({"at": 1.0, "kind": "pause", "step": 1, "said": "x" * 400_000})
    rundir.events.write_text(f"{line}\n{line}\n")
    assert [len(event.said) for event in read(rundir)] == [500, 500]


def test_a_torn_line_costs_that_event_alone(rundir: RunDirectory) -> None:
    add(rundir, EventKind.PAUSE, step=1)
    with rundir.events.open("ab") as file:
        file.write(b'\n{"at": 3, "kind": "pa')
    add(rundir, EventKind.PAUSE, step=2)
    with rundir.events.open("ab") as file:
        file.write(b'\n[]\n{"at": 1, "kind": "unheard of"}\n\xff')
    assert kinds(rundir) == [(EventKind.PAUSE, 1), (EventKind.PAUSE, 2)]


def test_the_file_stays_small_and_keeps_the_newest(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_events, "LIMIT_BYTES", 4000)
    for step in range(300):
        add(rundir, EventKind.CHANGE, "x" * 2000 if step == 0 else "", step=step)
    steps = [event.step or 0 for event in read(rundir)]
    assert rundir.events.stat().st_size < 5000
    assert steps[-1] == 299 and steps == list(range(steps[0], 300))


def test_evaluations_are_dropped_first(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_events, "LIMIT_BYTES", 4000)
    add(rundir, EventKind.KILL, step=0)
    for step in range(1, 300):
        add(rundir, EventKind.EVALUATION if step % 2 else EventKind.BEST, "val_loss 0.5", step=step)
    assert kinds(rundir)[0] == (EventKind.KILL, 0) and kinds(rundir)[-1] == (EventKind.EVALUATION, 299)
    assert len(kinds(rundir)) < 100
    assert rundir.events.stat().st_size < 5000


def test_what_cannot_be_written_disturbs_nothing(rundir: RunDirectory, tmp_path: Path) -> None:
    State(Phase.PAUSED, step=3).write(rundir.state)
    rundir.events.mkdir()
    add(rundir, EventKind.PAUSE)
    assert "paused" in CliRunner().invoke(cli, ["status", str(rundir.path)]).output
    assert isinstance(CliRunner().invoke(cli, ["events", str(rundir.path)]).exception, StorageError)
    add(RunDirectory(tmp_path / "nowhere"), EventKind.PAUSE)
    assert not (tmp_path / "nowhere").exists()


def test_the_command_shows_them(rundir: RunDirectory) -> None:
    now = time.time()
    add(rundir, EventKind.START, "jobs:job", at=now - 7200)
    add(rundir, EventKind.SAVE_FAILED, "no room\x1b[2J", step=1200, at=now)

    def said(*arguments: str) -> str:
        return CliRunner().invoke(cli, ["events", str(rundir.path), *arguments]).output

    both, last = said().splitlines(), said("--since", "1h").splitlines()
    assert len(both) == 2 and "start" in both[0] and both[1:] == last
    assert "save failed  step 1,200  no room" in last[0] and "\x1b" not in last[0]
    [found] = json.loads(said("--since", "90m", "--json"))
    assert (found["kind"], found["step"]) == ("save failed", 1200)
    assert "expected a duration" in said("--since", "yesterday")


def test_evaluations_do_not_hide_the_other_events(rundir: RunDirectory) -> None:
    add(rundir, EventKind.START, "jobs:job")
    for step in range(400):
        add(rundir, EventKind.EVALUATION, step=step)
    add(rundir, EventKind.PAUSE, step=400)

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
        Event(1, EventKind.PAUSE, 10),
        Event(2, EventKind.KILL, 35),
        Event(3, EventKind.RESUME, 20),
        Event(4, EventKind.PAUSE, 40),
        Event(5, EventKind.ROLLBACK, 30),
        Event(6, EventKind.FAIL, 33, "my own mistake"),
    ):
        add(rundir, event.kind, event.said, step=event.step, at=event.at)
    moments = [(each.kind, each.step, each.said) for each in story_of(rundir).moments]
    assert moments == [
        (MomentKind.PAUSE, 10, ""),
        (MomentKind.CRASH, 20, "lost: 15 steps"),
        (MomentKind.CRASH, 33, "my own mistake"),
    ]
