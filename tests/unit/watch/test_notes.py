"""What the watcher notes, and what it forgets again. Time is passed in."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from trainerd.errors import StorageError
from trainerd.watch.delivery import notes as module
from trainerd.watch.delivery.notes import Notes
from trainerd.watch.delivery.notice import Notice

DAY = 86400.0


def notice(key: str, at: float) -> Notice:
    return Notice("failed", "a", key, at, key)


def rows(notes: Notes) -> dict[str, int]:
    """How many rows each table has."""
    with contextlib.closing(sqlite3.connect(notes.path)) as database:
        return {
            table: database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            for table in ("told", "queue", "read")
        }


def test_notes_that_cannot_be_used_are_reported(tmp_path: Path) -> None:
    notes = Notes(tmp_path, 0.0)
    notes.path.write_text("no database" * 1000)
    with pytest.raises(StorageError, match=r"cannot use the watcher's notes, .*: file is not a database. Move it away"):
        notes.take("run", ["line"], [], [], 0.0)
    notes.path.unlink()
    notes.path.mkdir()
    with pytest.raises(StorageError, match="This user must be able to write there"):
        notes.take("run", ["line"], [], [], 0.0)


def test_what_is_too_old_to_be_news_is_forgotten_and_not_reported_again(tmp_path: Path) -> None:
    notes = Notes(tmp_path, 0.0)
    for day in range(0, 1000, 45):
        assert notes.take("run", ["line"], [notice(f"day {day}", day * DAY)], [], day * DAY)
    assert rows(notes)["told"] == 3 and not notes.is_known("day 0") and notes.is_known("day 990")
    again = [notice(f"day {day}", day * DAY) for day in range(0, 1000, 45)]
    assert notes.take("run", ["line"], again, [], 990 * DAY) == []


def test_a_run_that_fails_again_and_again_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_MOST_KNOWN", "_MOST_WAITING", "_MOST_RUNS"):
        monkeypatch.setattr(module, limit, 5)
    notes = Notes(tmp_path, 0.0)
    for number in range(12):  # as fast as it can, in a channel that does not answer, and in ever new folders
        notes.take(f"run {number}", ["line"], [notice(str(number), 1e18)], ["channel"], 1.0)
        notes.take("busy", [f"line {number}"], [], ["channel"], 1.0)
    assert rows(notes) == {"told": 5, "queue": 5, "read": 5}
    assert notes.lines_read("busy") == ["line 11"] and not notes.lines_read("run 0"), "the newest are kept"
    found = notes.first("channel")
    assert found is not None and found[1].key == "7", "the oldest that waits is dropped"
