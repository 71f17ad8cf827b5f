"""The agent: looks at the queue and its runs, and starts and pauses runs.

It writes what it is about to do before it does it. So it can be killed at any moment: its runs go on, and the next
agent takes them over.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

import psutil

from trainerd.agent import notes as agent_notes
from trainerd.agent.entry import QueueEntry
from trainerd.agent.notes import AgentNotes, EntryNotes
from trainerd.agent.plan import Candidate, Decision, Room, decide
from trainerd.agent.progress import Observed, Progress, Stage, StartResult, follow
from trainerd.agent.queue_folder import Queue, QueueFolder
from trainerd.agent.when.conditions import Verdict
from trainerd.errors import StorageError
from trainerd.rundir import request_files
from trainerd.rundir.runs import RunReader
from trainerd.rundir.state import Phase
from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.process_identity import process_identity
from trainerd.version import __version__

log = logging.getLogger(__name__)

LOOK_SECS = 0.25  # between two looks at whether anything has changed
SOON_SECS = 0.05  # the same while a run starts or pauses
WHOLE_SECS = 10.0  # between two looks at everything: hours, batteries and temperatures write no file
_ASK_AGAIN_SECS = 3.0  # a pause whose file is gone, and that nobody serves
BY = "the agent"


class Starts(Protocol):
    """What starts runs; see `Starter`."""

    def start(self, name: str, entry: QueueEntry, gpus: tuple[int, ...], *, has_gpus: bool) -> None: ...
    def is_starting(self, name: str) -> bool: ...
    def take_result(self, name: str) -> StartResult | None: ...


@dataclass
class _FollowedRun:
    """A run of the queue, between two looks.

    Attributes:
      reader: reads it.
      asked_at: when it was last asked to pause, in seconds of a clock that is never set.
    """

    reader: RunReader
    asked_at: float = 0.0


class Agent:
    """Trains the runs of the queue.

    Args:
      queue: the queue.
      room: returns what the machine has now.
      starter: starts runs.
      judge: returns whether `[when]` of an entry's config lets it train now. It is told whether the entry trains.
      clock: seconds since 1970 (UTC).
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self,
        queue: QueueFolder,
        room: Callable[[], Room],
        starter: Starts,
        judge: Callable[[QueueEntry, bool], Verdict],
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._room, self._starter, self._judge = queue, room, starter, judge
        self._clock, self._timer = clock, timer
        self._notes = agent_notes.read()
        self._identity = (os.getpid(), *process_identity(os.getpid()))
        self._runs: dict[str, _FollowedRun] = {}
        self._queue = Queue()
        self._stamp: object = None
        self._seen: object = None
        self._whole_at = 0.0
        self._trouble = ""

    def check(self) -> float:
        """Look once, and do what is to be done.

        Returns:
          The seconds until the next look.
        """
        try:
            stamp = self._folder.stamp()
            seen = (stamp, [run.reader.is_here() for run in self._on()])
            is_moving = self._is_moving()
            if seen == self._seen and self._timer() < self._whole_at and not is_moving:
                return LOOK_SECS
            if stamp != self._stamp:
                self._queue, self._stamp = self._folder.read(before=self._queue), stamp
            self._seen = seen
            self._whole_at = self._timer() + WHOLE_SECS
            self._look()
        except StorageError as error:
            if str(error) != self._trouble:
                log.error("%s", error, extra={"event": "agent-failed"})
            self._trouble = str(error)
            return LOOK_SECS
        self._trouble = ""
        return SOON_SECS if self._is_moving() else LOOK_SECS

    def _on(self) -> list[_FollowedRun]:
        return [run for name, run in self._runs.items() if self._stage(name).is_on]

    def _stage(self, name: str) -> Stage:
        found = self._notes.entries.get(name)
        return found.progress.stage if found is not None else Stage.WAITING

    def _is_moving(self) -> bool:
        return any(each.progress.stage in (Stage.STARTING, Stage.PAUSING) for each in self._notes.entries.values())

    def _look(self) -> None:
        entries, now = self._queue.entries, self._clock()
        self._runs = {name: self._followed(name, entry) for name, entry in entries.items()}
        candidates = [self._candidate(name, entry, now) for name, entry in entries.items()]
        room = self._room()
        decisions = decide(candidates, room, now)
        after = {each.name: self._after(each, decisions[each.name], now) for each in candidates}
        self._note(after, room)
        for each in candidates:
            self._act(each, decisions[each.name], room)

    def _followed(self, name: str, entry: QueueEntry) -> _FollowedRun:
        found = self._runs.get(name)
        is_same = found is not None and str(found.reader.rundir.path) == entry.logdir
        return found if found is not None and is_same else _FollowedRun(RunReader(Path(entry.logdir)))

    def _candidate(self, name: str, entry: QueueEntry, now: float) -> Candidate:
        run = self._runs[name].reader.read()
        started = self._starter.take_result(name)
        before = self._notes.entries[name].progress if name in self._notes.entries else Progress()
        seen = Observed(run.is_running, run.state, self._starter.is_starting(name), started)
        verdict = self._judge(entry, run.is_running)
        progress = follow(entry, before, seen, now, may_train=verdict.may_train)
        if progress.stage is not before.stage:
            _log_change(name, progress)
        return Candidate(name, entry, progress, verdict)

    def _after(self, each: Candidate, decision: Decision, now: float) -> EntryNotes:
        """Return the notes of an entry when its decision is carried out."""
        progress = each.progress
        if decision.action == "start":
            progress = replace(progress, stage=Stage.STARTING, why="", gpus=decision.gpus, turn_began=now)
        elif decision.action == "pause":
            progress = replace(progress, stage=Stage.PAUSING, why=decision.why)
        elif decision.action == "turn":
            progress = replace(progress, turn_began=now, turns=progress.turns + 1)
        until = decision.until.timestamp() if decision.until is not None else None
        return EntryNotes(progress, each.entry.logdir, decision.why, until)

    def _note(self, entries: Mapping[str, EntryNotes], room: Room) -> None:
        """Write what is known and decided, before anything is done."""
        notes = AgentNotes(__version__, *self._identity, room.slots, room.gpus, entries)
        if notes != self._notes:
            agent_notes.write(notes)
            self._notes = notes

    def _act(self, each: Candidate, decision: Decision, room: Room) -> None:
        """Carry out a decision. If that fails, the next look decides again."""
        try:
            self._start_or_pause(each, decision, room)
        except StorageError as error:
            log.error("%s", error, extra={"event": "agent-failed"})

    def _start_or_pause(self, each: Candidate, decision: Decision, room: Room) -> None:
        run = self._runs[each.name]
        if decision.action == "start":
            log.info("starting %s", each.name, extra={"event": "agent-start"})
            self._starter.start(each.name, each.entry, decision.gpus, has_gpus=bool(room.gpus))
        elif decision.action == "pause":
            log.info("pausing %s: %s", each.name, decision.why, extra={"event": "agent-pause"})
            self._ask_to_pause(run, decision.why)
        elif each.progress.stage is Stage.PAUSING and self._is_unheard(run):
            self._ask_to_pause(run, each.progress.why)

    def _ask_to_pause(self, run: _FollowedRun, why: str) -> None:
        run.asked_at = self._timer()
        path = run.reader.rundir.pause
        with storage(f"write {path}"):
            write_atomic(path, f"{BY}: {why}\n".encode(), durable=False, for_all=True)

    def _is_unheard(self, run: _FollowedRun) -> bool:
        """Return whether a pause was not heard: a process that starts removes what was asked of the one before."""
        if self._timer() - run.asked_at < _ASK_AGAIN_SECS or request_files.is_pause_asked(run.reader.rundir):
            return False
        state = run.reader.read().state
        return state is None or state.phase not in (Phase.SAVING, Phase.PAUSING)


def _log_change(name: str, progress: Progress) -> None:
    level = logging.ERROR if progress.stage is Stage.FAILED else logging.INFO
    why = f": {progress.why}" if progress.why else ""
    log.log(level, "%s is %s%s", name, progress.stage, why, extra={"event": f"agent-{progress.stage}"})


def available_memory() -> int:
    """Return the memory that programs can have without swapping, in bytes."""
    return int(psutil.virtual_memory().available)


def until_text(until: float | None, now: float) -> str:
    """Return a moment for a person, in local time: with its day if that is not today."""
    if until is None:
        return ""
    at, today = datetime.fromtimestamp(until), datetime.fromtimestamp(now)
    return f"{at:%H:%M}" if at.date() == today.date() else f"{at:%a %d %b %H:%M}"
