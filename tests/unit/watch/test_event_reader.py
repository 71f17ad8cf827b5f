"""The events of a run as they are written: what was read once is not read again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.watch.conftest import MakeRun
from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import EventKind, add
from trainerd.watch.event_reader import EventReader


@pytest.fixture
def rundir(make_run: MakeRun) -> RunDirectory:
    return make_run()


def steps(reader: EventReader) -> Sequence[int | None]:
    reader.read()
    return [event.step for event in reader.events]


def test_a_look_reads_what_is_new_and_keeps_the_rest(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, read = EventReader(rundir), []
    parse = run_events.parse

    def noting(content: bytes) -> tuple[list[run_events.Event], int]:
        read.append(len(content))
        return parse(content)

    monkeypatch.setattr(run_events, "parse", noting)
    assert steps(reader) == []
    for step in range(50):
        add(rundir, EventKind.EVALUATION, step=step)
        first = reader.events[:1]
        assert steps(reader) == list(range(step + 1))
        assert all(kept is reader.events[0] for kept in first)
    assert sum(read) == rundir.events.stat().st_size and reader.counts == {"evaluation": 50}


def test_a_last_line_that_is_torn_is_read_when_it_is_whole(rundir: RunDirectory) -> None:
    reader = EventReader(rundir)
    add(rundir, EventKind.PAUSE, step=1)
    whole = rundir.events.read_bytes()
    rundir.events.write_bytes(whole[:-9])
    assert steps(reader) == []
    with rundir.events.open("ab") as file:
        file.write(whole[-9:])
    assert steps(reader) == [1]
    with rundir.events.open("ab") as file:
        file.write(b'\n{"at": 3, "kind": "pa')
    assert steps(reader) == [1]
    add(rundir, EventKind.PAUSE, step=2)
    assert steps(reader) == [1, 2] and reader.counts == {"pause": 2}


@settings(max_examples=40, deadline=None)  # each act is a write to the disk
@given(acts=st.lists(st.sampled_from([EventKind.PAUSE, EventKind.EVALUATION, "shorten", "remove"]), max_size=40))
def test_it_has_what_the_file_has_and_counts_each_event_once(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str]
) -> None:
    rundir = RunDirectory(tmp_path_factory.mktemp("run"))
    reader = EventReader(rundir)
    for number, act in enumerate(acts):
        if isinstance(act, EventKind):
            add(rundir, act, step=number, at=float(number))
        elif act == "remove":
            rundir.events.unlink(missing_ok=True)
        elif rundir.events.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(run_events, "LIMIT_BYTES", 0)
                add(rundir, EventKind.FINISH, step=number, at=float(number))
            assert len(run_events.read(rundir)) <= max(1, (number + 2) // 2)
        reader.read()
        assert list(reader.events) == run_events.read(rundir)
    assert reader.counts["pause"] == acts.count(EventKind.PAUSE)
    assert reader.counts["evaluation"] == acts.count(EventKind.EVALUATION)
