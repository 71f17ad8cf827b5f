"""The events of a run: one line of JSON for each, in `run-events.jsonl` of the run directory.

The file is appended to. When it has grown too large, evaluations and bests are dropped, and its older half if that is
not enough. A line that a kill or a full disk has torn is passed over.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from trainerd.errors import StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.shared_files import writing
from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.process_wide import process_wide
from trainerd.system.regular_files import open_to_append, read_end

log = logging.getLogger(__name__)

LIMIT_BYTES = 1 << 19
_NEWEST = 20  # events that are never dropped
_LONGEST = 500  # characters that an event says


class EventKind(StrEnum):
    """The kinds of events."""

    START = "start"
    RESUME = "resume"
    PAUSE = "pause"
    FINISH = "finish"
    FAIL = "failure"
    KILL = "killed"
    REBOOT = "reboot"
    SAVE_FAILED = "save failed"
    EVALUATION = "evaluation"
    BEST = "best"
    HANG = "hang"
    ROLLBACK = "rollback"
    QUARANTINE = "quarantine"
    CHANGE = "change"


_FREQUENT = (EventKind.EVALUATION, EventKind.BEST)  # other files have them too
_MOST_WAITING = 1000  # events that are kept in memory while they cannot be written
_PATIENCE_SECS = 2.0


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
      at: when, in seconds since 1970 (UTC).
      kind: what kind.
      step: at which step; None if it has none.
      said: more of it, for a person.
    """

    at: float
    kind: EventKind
    step: int | None = None
    said: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON's types."""
        return asdict(self) | {"kind": str(self.kind)}


_guard = threading.Lock()
_waiting = process_wide("waiting events", dict[Path, list[Event]]())


def add(
    rundir: RunDirectory, kind: EventKind, said: str = "", *, step: int | None = None, at: float | None = None
) -> None:
    """Add an event. If it cannot be written, the run continues all the same.

    What cannot be written now, as while another process writes the file, waits for the next call or for `flush`.

    Args:
      rundir: the run directory.
      kind: what happened.
      said: more of it, for a person; its first line is kept.
      step: at which step.
      at: when, in seconds since 1970 (UTC). Default: now.
    """
    first = said.partition("\n")[0][:_LONGEST]
    event = Event(time.time() if at is None else at, kind, step, first)
    with _guard:
        _waiting[rundir.path] = [*_waiting.get(rundir.path, []), event][-_MOST_WAITING:]
    flush(rundir, patience=0.0)


def flush(rundir: RunDirectory, patience: float = _PATIENCE_SECS) -> None:
    """Write the events that wait.

    Args:
      rundir: the run directory.
      patience: seconds to wait for another process that writes the file.
    """
    with _guard:
        if not (events := _waiting.get(rundir.path)):
            return
        try:
            with writing(rundir, patience), storage(f"write {rundir.events}"):
                descriptor = _append(rundir, events)
        except StorageError as error:
            log.debug("%s", error)
            return
        del _waiting[rundir.path]
    _make_durable(descriptor, events)


def read(rundir: RunDirectory) -> list[Event]:
    """Return the events, oldest first; the newest of a file that is larger than this module lets it become.

    Raises:
      StorageError: they cannot be read.
    """
    content = b""
    with storage(f"read {rundir.events}", missing_ok=True):
        content = read_end(rundir.events)
    return parse(content)[0]


def parse(content: bytes) -> tuple[list[Event], int]:
    """Return the events in a part of the file that begins where a line does.

    Returns:
      The events, oldest first, and the number of bytes that they take: a last line that is torn is not among them,
      since it may be whole at the next look.
    """
    lines = content.split(b"\n")
    events = [_event(line) for line in lines]
    torn = len(lines[-1]) if events[-1] is None else 0
    return [event for event in events if event is not None], len(content) - torn


def notable(events: Sequence[Event]) -> list[Event]:
    """Return the events without evaluations, which come so often that they would hide the others."""
    return [event for event in events if event.kind is not EventKind.EVALUATION]


def _event(line: bytes) -> Event | None:
    """Return the event in a line; None if the line is torn. A job may have written more text than `add` keeps."""
    with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        event = msgspec.json.decode(line, type=Event)
        return event if len(event.said) <= _LONGEST else replace(event, said=event.said[:_LONGEST])
    return None


def _append(rundir: RunDirectory, events: Sequence[Event]) -> int:
    """Append events, and shorten a file that has grown too large. Returns the descriptor that they were written to."""
    descriptor = open_to_append(rundir.events)
    try:
        found = os.fstat(descriptor)
        is_large, is_own = found.st_size > LIMIT_BYTES, found.st_uid == os.geteuid()
        if is_large and not is_own:  # only its owner can shorten it, and may never train again
            events = [event for event in events if event.kind not in _FREQUENT]
        # The end of a line stands in front, so that a torn line costs no other.
        content = b"".join(b"\n" + json.dumps(event.to_json()).encode() for event in events)
        while content:
            content = content[os.write(descriptor, content) :]
    except BaseException:
        os.close(descriptor)
        raise
    if is_large and is_own:
        try:
            _shorten(rundir)
        except OSError as error:  # the next event tries again
            log.debug("%s: %s", rundir.events, error)
    return descriptor


def _make_durable(descriptor: int, events: Sequence[Event]) -> None:
    """Put the events on disk that no other file has. This takes its time, so the lock is not held any more."""
    try:
        if any(event.kind not in _FREQUENT for event in events):
            os.fsync(descriptor)
    except OSError as error:
        log.debug("events: %s", error)
    finally:
        os.close(descriptor)


def _shorten(rundir: RunDirectory) -> None:
    lines = read_end(rundir.events).split(b"\n")
    events = [(line, event) for line in lines if (event := _event(line)) is not None]
    kept = [line for line, event in events[:-_NEWEST] if event.kind not in _FREQUENT]
    kept += [line for line, _ in events[-_NEWEST:]]
    if sum(map(len, kept)) > LIMIT_BYTES // 2:
        kept = kept[len(kept) // 2 :]
    write_atomic(rundir.events, b"\n".join(kept))
