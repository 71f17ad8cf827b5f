"""The watcher's memory over restarts: the events that it has read, the notices that it has queued, those that wait.

It is a database of SQLite, so that an event is noted and queued at once or not at all:
https://www.sqlite.org/atomiccommit.html
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from trainerd.errors import StorageError
from trainerd.system.durable_files import storage
from trainerd.watch.delivery.notice import Notice

NAME = "watch.db"
_BUSY_SECS = 30.0
_NEWS_SECS = 90 * 86400.0  # after which nothing is news, so that older notices can be forgotten
_MOST_KNOWN = _MOST_WAITING = _MOST_RUNS = 10_000  # whatever the runs write
_TABLES = """
CREATE TABLE IF NOT EXISTS begun (at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS read (run TEXT PRIMARY KEY, lines TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS told (key TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, notice TEXT NOT NULL);
"""


class Notes:
    """The notes, in a folder that only this user may look into.

    Args:
      folder: the folder; it is made if it is missing.
      now: in seconds since 1970 (UTC). No notice is queued for what happened before the first start.

    Raises:
      StorageError: they cannot be read or written; so do all methods.
    """

    def __init__(self, folder: Path, now: float) -> None:
        with storage(f"make {folder}"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / NAME
        with storage(f"make {self.path}"):
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        with self._at_once() as database:
            database.executescript(_TABLES)
        with self._at_once() as database:
            if database.execute("SELECT at FROM begun").fetchone() is None:
                database.execute("INSERT INTO begun VALUES (?)", (now,))
            self.begun_at = float(database.execute("SELECT at FROM begun").fetchone()[0])

    def lines_read(self, run: str) -> list[str]:
        """Return the last lines that were read of a run's events; empty if none ever was."""
        with self._at_once() as database:
            found = database.execute("SELECT lines FROM read WHERE run = ?", (run,)).fetchone()
        return list(json.loads(found[0])) if found is not None else []

    def take(
        self, run: str, lines: Sequence[str], notices: Sequence[Notice], channels: Sequence[str], now: float
    ) -> list[Notice]:
        """Note what was read, and put each new notice into the queue of each channel.

        Forget notices that are too old to come again, and the oldest if there are too many.

        Args:
          run: the path of the run directory.
          lines: the last lines of its events; empty if they are as they were.
          notices: those that are due; known ones are skipped.
          channels: their names.
          now: in seconds since 1970 (UTC).

        Returns:
          What is new.
        """
        with self._at_once() as database:
            oldest = now - _NEWS_SECS
            new = [notice for notice in notices if notice.at >= oldest and self._is_new(database, notice)]
            if lines:
                database.execute("INSERT OR REPLACE INTO read VALUES (?, ?)", (run, json.dumps(list(lines))))
            for notice in new:
                rows = [(channel, json.dumps(asdict(notice))) for channel in channels]
                database.executemany("INSERT INTO queue (channel, notice) VALUES (?, ?)", rows)
            self._prune(database, oldest)
        return new

    def _prune(self, database: sqlite3.Connection, oldest: float) -> None:
        database.execute("DELETE FROM told WHERE at < ?", (oldest,))
        for table, most in (("told", _MOST_KNOWN), ("queue", _MOST_WAITING), ("read", _MOST_RUNS)):
            newest = f"SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT 1 OFFSET {most}"
            database.execute(f"DELETE FROM {table} WHERE rowid <= ({newest})")

    def is_known(self, key: str) -> bool:
        """Return whether the notice of this key was queued before."""
        with self._at_once() as database:
            return database.execute("SELECT 1 FROM told WHERE key = ?", (key,)).fetchone() is not None

    def _is_new(self, database: sqlite3.Connection, notice: Notice) -> bool:
        row = (notice.key, notice.at)
        return database.execute("INSERT OR IGNORE INTO told VALUES (?, ?)", row).rowcount == 1

    def waiting(self) -> dict[str, int]:
        """Return how many notices wait, by channel."""
        with self._at_once() as database:
            return dict(database.execute("SELECT channel, COUNT(*) FROM queue GROUP BY channel").fetchall())

    def first(self, channel: str) -> tuple[int, Notice] | None:
        """Return the oldest notice that waits for a channel, with its number; None if none does."""
        query = "SELECT id, notice FROM queue WHERE channel = ? ORDER BY id LIMIT 1"
        with self._at_once() as database:
            found = database.execute(query, (channel,)).fetchone()
        if found is None:
            return None
        said = json.loads(found[1])
        return int(found[0]), Notice(**{**said, "pictures": tuple(said["pictures"])})

    def delivered(self, number: int) -> None:
        """Record that a notice has reached its channel."""
        with self._at_once() as database:
            database.execute("DELETE FROM queue WHERE id = ?", (number,))

    def drop_others(self, channels: Sequence[str]) -> None:
        """Forget what waits for channels that the settings no longer have."""
        with self._at_once() as database:
            for (channel,) in database.execute("SELECT DISTINCT channel FROM queue").fetchall():
                if channel not in channels:
                    database.execute("DELETE FROM queue WHERE channel = ?", (channel,))

    @contextlib.contextmanager
    def _at_once(self) -> Iterator[sqlite3.Connection]:
        """Hold one transaction while the block runs; it is on disk when the block has ended.

        It has a connection of its own: senders are other processes, and a connection of SQLite must not cross a fork.
        """
        try:
            database = sqlite3.connect(self.path, timeout=_BUSY_SECS, isolation_level=None)
            with contextlib.closing(database):
                database.execute("PRAGMA synchronous = FULL")
                database.execute("BEGIN IMMEDIATE")
                yield database
                if database.in_transaction:
                    database.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(f"cannot use the watcher's notes, {self.path}: {error}. {_advice(error)}") from error


def _advice(error: sqlite3.Error) -> str:
    if isinstance(error, sqlite3.OperationalError):
        return "This user must be able to write there, and the disk must have room."
    return "Move it away: the watcher then starts with a new one, and sends no notice of what happened before."
