"""What happened to a run: a line of JSON for each event, in `run-events.jsonl` of the run directory.

The file is appended to. When it has grown too large, evaluations and bests are dropped, and its older half if that is
not enough. A line that a kill or a full disk has torn is passed over.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import msgspec

from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.regular_files import open_to_append, read_regular

log = logging.getLogger(__name__)

LIMIT_BYTES = 1 << 19
_NEWEST = 20  # events that are never dropped
_LONGEST = 500  # characters that an event says


class Kind(StrEnum):
    """What kind of event."""

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


_FREQUENT = (Kind.EVALUATION, Kind.BEST)  # other files have them too


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
    kind: Kind
    step: int | None = None
    said: str = ""

    def to_json(self) -> dict[str, Any]:
        """The event as JSON's types."""
        return asdict(self) | {"kind": str(self.kind)}


def add(rundir: RunDirectory, kind: Kind, said: str = "", *, step: int | None = None, at: float | None = None) -> None:
    """Add an event. If it cannot be written, the run goes on all the same.

    Args:
      rundir: the run directory.
      kind: what happened.
      said: more of it, for a person; its first line is kept.
      step: at which step.
      at: when, in seconds since 1970 (UTC). Default: now.
    """
    first = said.partition("\n")[0][:_LONGEST]
    event = Event(time.time() if at is None else at, kind, step, first)
    try:
        _append(rundir, json.dumps(event.to_json()).encode(), durable=kind not in _FREQUENT)
    except OSError as error:
        log.debug("%s: %s", rundir.events, error)


def read(rundir: RunDirectory) -> list[Event]:
    """The events, oldest first.

    Raises:
      StorageError: they cannot be read.
    """
    content = b""
    with storage(f"read {rundir.events}", missing_ok=True):
        content = read_regular(rundir.events)
    return parse(content)[0]


def parse(content: bytes) -> tuple[list[Event], int]:
    """The events in a part of the file that begins where a line does.

    Returns:
      The events, oldest first, and the number of bytes that they take: a last line that is torn is not among them,
      since it may be whole at the next look.
    """
    lines = content.split(b"\n")
    events = [_event(line) for line in lines]
    torn = len(lines[-1]) if events[-1] is None else 0
    return [event for event in events if event is not None], len(content) - torn


def notable(events: Sequence[Event]) -> list[Event]:
    """Those that are not evaluations, which come so often that they would hide the others."""
    return [event for event in events if event.kind is not Kind.EVALUATION]


def _event(line: bytes) -> Event | None:
    """What a line says; None for a torn one."""
    with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return msgspec.json.decode(line, type=Event)
    return None


def _append(rundir: RunDirectory, line: bytes, *, durable: bool) -> None:
    descriptor = open_to_append(rundir.events)
    try:
        found = os.fstat(descriptor)
        is_large, is_own = found.st_size > LIMIT_BYTES, found.st_uid == os.geteuid()
        if is_large and not is_own and not durable:
            return  # only its owner can shorten it, and may never train again
        os.write(descriptor, b"\n" + line)  # in front: what comes after a torn line begins anew
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_large and is_own:
        _shorten(rundir)


def _shorten(rundir: RunDirectory) -> None:
    lines = read_regular(rundir.events).split(b"\n")
    events = [(line, event) for line in lines if (event := _event(line)) is not None]
    kept = [line for line, event in events[:-_NEWEST] if event.kind not in _FREQUENT]
    kept += [line for line, _ in events[-_NEWEST:]]
    if sum(map(len, kept)) > LIMIT_BYTES // 2:
        kept = kept[len(kept) // 2 :]
    write_atomic(rundir.events, b"\n".join(kept))
