"""The agent: checks the queue and its runs, and starts and pauses runs.

It writes what it is about to do before it does it. So it can be killed at any moment: its runs continue, and the next
agent takes them over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil

from trainerd.agent import notes as agent_notes
from trainerd.agent.by_hand import RunsByHand
from trainerd.agent.entry import QueueEntry
from trainerd.agent.notes import AgentNotes, EntryNotes
from trainerd.agent.plan import Candidate, Decision, Room, decide
from trainerd.agent.progress import BEGIN_SECS, EntryProgress, Observed, Stage, StartResult, follow
from trainerd.agent.queue_folder import Queue, QueueFolder
from trainerd.agent.swept import Promotions
from trainerd.agent.when.conditions import WhenVerdict
from trainerd.agent.when.configs import WhenConfigs
from trainerd.agent.when.judge import WhenJudge
from trainerd.errors import NotRunningError, StorageError, TrainerdError
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.request_files import AGENT
from trainerd.rundir.requests.pending_request import PendingRequest
from trainerd.rundir.runs import ListedRun, RunReader
from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.process_identity import process_identity
from trainerd.version import __version__

log = logging.getLogger(__name__)

LOOK_SECS = 0.5  # between two checks whether anything has changed
SOON_SECS = 0.05  # the same while a run starts or pauses
WHOLE_SECS = 10.0  # between two checks of everything: hours, batteries and temperatures write no file


class Starts(Protocol):
    """Starts runs; see `Starter`."""

    def start(
        self, name: str, entry: QueueEntry, after: QueueEntry | None, gpus: tuple[int, ...], *, has_gpus: bool
    ) -> None: ...
    def is_starting(self, name: str) -> bool: ...
    def take_result(self, name: str) -> StartResult | None: ...


class _Judge(Protocol):
    """Judges whether `[when]` lets a run train."""

    def __call__(self, entry: QueueEntry, before: EntryProgress, *, is_training: bool) -> WhenVerdict: ...


class _QueuedRun:
    """A run of the queue, between two looks.

    Args:
      path: its run directory.

    Attributes:
      reader: reads it.
    """

    def __init__(self, path: Path) -> None:
        self.reader = RunReader(path)
        self._pause: PendingRequest | None = None
        self._looked_at = 0.0

    def is_here(self) -> bool | None:
        """Return whether a process of this machine trains it; None if that cannot be read."""
        try:
            return self.reader.is_here()
        except StorageError:
            return None

    def ask_to_pause(self, why: str, now: float) -> None:
        """Ask its process to pause, or see that it has heard of it; `now` is of a clock that is never set.

        Raises:
          StorageError: the request cannot be written.
        """
        rundir = self.reader.rundir
        if self._pause is None or not self._pause.holder.is_alive():
            holder = read_holder(rundir)
            if holder is None:
                return
            self._pause = PendingRequest(rundir, holder, "", partial(_write_pause, rundir, why), rundir.pause, "paused")
            self._pause.send()
        else:
            with contextlib.suppress(NotRunningError):  # the next look sees that
                self._pause.look(now - self._looked_at)
        self._looked_at = now


class Agent:
    """Trains the runs of the queue.

    Args:
      queue: the queue.
      room: returns what the machine has now, given the processes of the queue's runs.
      starter: starts runs.
      judge: judges whether `[when]` lets a run train now.
      clock: seconds since 1970 (UTC).
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self,
        queue: QueueFolder,
        room: Callable[[Sequence[int]], Room],
        starter: Starts,
        judge: WhenJudge,
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._room, self._starter, self._judge = queue, room, starter, judge
        self._clock, self._timer = clock, timer
        self._identity = (os.getpid(), *process_identity(os.getpid()))
        self._notes = agent_notes.read().since_boot(*self._identity[1:])
        self._runs: dict[str, _QueuedRun] = {}
        self._on: list[tuple[str, _QueuedRun]] = []  # those that have a process, or are about to
        self._wait = LOOK_SECS
        self._queue = Queue()
        self._seen: object = None
        self._whens = WhenConfigs()
        self._by_hand = RunsByHand(queue, self._whens)
        self._promotions = Promotions(queue, clock)
        self._whole_at = 0.0
        self._trouble = ""

    def check(self) -> float:
        """Look once, and do what is to be done.

        Returns:
          The seconds until the next look.
        """
        try:
            stamp = self._folder.stamp()
            seen = (stamp, [(run.is_here(), self._starter.is_starting(name)) for name, run in self._on])
            if seen == self._seen and self._timer() < self._whole_at:
                return self._wait
            self._queue = self._folder.read(before=self._queue)
            self._whole_at = self._timer() + self._look()
            self._seen = seen
        except StorageError as error:
            if str(error) != self._trouble:
                log.error("%s", error, extra={"event": "agent-failed"})
            self._trouble = str(error)
            return LOOK_SECS
        self._trouble = ""
        return self._wait

    def _look(self) -> float:
        """Check everything. Returns the seconds until the next such check is due, if nothing changes before."""
        entries, now = self._queue.entries, self._clock()
        self._by_hand.add({entry.logdir for entry in entries.values()})
        self._runs = {name: self._followed(name, entry) for name, entry in entries.items()}
        # In this order: what a run says after its command or its process has ended is the last that it says.
        starts = {name: (self._starter.is_starting(name), self._starter.take_result(name)) for name in entries}
        here = {name: bool(run.is_here()) for name, run in self._runs.items()}
        runs = {name: run.reader.read() for name, run in self._runs.items()}
        own = [run.state.pid for name, run in runs.items() if here[name] and run.state is not None]
        removed = {name: _is_removed(run, entries[name]) for name, run in runs.items()}
        seen = {name: Observed(here[name], run.state, *starts[name], removed[name]) for name, run in runs.items()}
        room = self._room(own)
        judge = partial(self._judge_run, own_pids=own, has_gpus=bool(room.gpus))
        candidates = [self._candidate(each, entries[each], runs[each], seen[each], judge, now) for each in entries]
        decisions = decide(candidates, room, now)
        after = {each.name: self._after(each, decisions[each.name], now) for each in candidates}
        try:
            self._note(after, room)
        except StorageError:  # nothing is started that the next agent would not know of
            candidates = [each for each in candidates if decisions[each.name].action != "start"]
            raise
        finally:
            for each in candidates:
                self._act(each, decisions[each.name], room)
        self._promotions.promote(entries, {name: note.progress.stage for name, note in after.items()}, room.slots)
        progress = [note.progress for note in after.values()]
        self._on = [(name, self._runs[name]) for name, note in after.items() if note.progress.stage.is_on]
        is_moving = any(each.stage in (Stage.STARTING, Stage.PAUSING) for each in progress)
        self._wait = SOON_SECS if is_moving else LOOK_SECS
        changes = [note.until for note in after.values() if note.until is not None]
        changes += [each.turn_began + BEGIN_SECS for each in progress if each.stage is Stage.STARTING]
        if room.share_secs is not None:
            changes += [each.turn_began + room.share_secs for each in progress if each.stage.is_on]
        return min([WHOLE_SECS, *(at - now for at in changes if at > now)])

    def _followed(self, name: str, entry: QueueEntry) -> _QueuedRun:
        found = self._runs.get(name)
        is_same = found is not None and str(found.reader.rundir.path) == entry.logdir
        return found if found is not None and is_same else _QueuedRun(Path(entry.logdir))

    def _candidate(
        self, name: str, entry: QueueEntry, run: ListedRun, seen: Observed, judge: _Judge, now: float
    ) -> Candidate:
        noted = self._notes.entries.get(name)
        before = noted.progress if noted is not None and noted.logdir == entry.logdir else EntryProgress()
        if run.unread and before.stage.is_on and self._runs[name].is_here() is not False:  # it may train
            return Candidate(name, entry, before, WhenVerdict(True))
        verdict = judge(entry, before, is_training=seen.is_running)
        if run.is_running and not seen.is_running and run.state is not None:
            verdict = WhenVerdict(False, f"another machine trains it: {run.state.host}")
        if (before.process or before.left_by) and not seen.is_removed and run.state is None and not run.unread:
            verdict = WhenVerdict(False, f"neither {entry.logdir} nor the folder that held it exists")
        progress = follow(entry, before, seen, now, may_train=verdict.may_train)
        if progress.stage is not before.stage:
            _log_change(name, progress)
        return Candidate(name, entry, progress, verdict)

    def _judge_run(
        self, entry: QueueEntry, before: EntryProgress, own_pids: Sequence[int], *, is_training: bool, has_gpus: bool
    ) -> WhenVerdict:
        try:
            when = self._whens.read(Path(entry.config), entry.set)
        except TrainerdError as error:  # nobody knows when it may train
            return WhenVerdict(is_training, str(error).partition("\n")[0])
        gpus = before.gpus if has_gpus and not before.is_by_hand else None
        return self._judge.judge(when, own_pids, is_training=is_training, gpus=gpus)

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
        unread = {name: self._notes.entries[name] for name in self._queue.mistakes if name in self._notes.entries}
        troubles = tuple(self._promotions.troubles.values())
        notes = AgentNotes(
            __version__,
            *self._identity,
            room.slots,
            room.gpus,
            {**unread, **entries},
            troubles=troubles,
            host=socket.gethostname(),
        )
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
            after = self._queue.entries.get(each.entry.after)
            self._starter.start(each.name, each.entry, after, decision.gpus, has_gpus=bool(room.gpus))
        elif decision.action == "pause":
            log.info("pausing %s: %s", each.name, decision.why, extra={"event": "agent-pause"})
            run.ask_to_pause(decision.why, self._timer())
        elif each.progress.stage is Stage.PAUSING:
            run.ask_to_pause(each.progress.why, self._timer())


def _write_pause(rundir: RunDirectory, why: str) -> None:
    """Write the request at once as a whole, with the reason in it."""
    with storage(f"write {rundir.pause}"):
        write_atomic(rundir.pause, f"{AGENT}: {why}\n".encode(), durable=False, for_all=True)


def _log_change(name: str, progress: EntryProgress) -> None:
    level = logging.ERROR if progress.stage is Stage.FAILED else logging.INFO
    why = f": {progress.why}" if progress.why else ""
    is_now = "has failed" if progress.stage is Stage.FAILED else f"is {progress.stage}"
    log.log(level, "%s %s%s", name, is_now, why, extra={"event": f"agent-{progress.stage}"})


def _is_removed(run: ListedRun, entry: QueueEntry) -> bool:
    """Return whether a run directory is not there, and the folder that it was in is: otherwise a disk may be late."""
    return run.state is None and not run.unread and Path(entry.logdir).parent.is_dir()


def available_memory() -> int:
    """Return the memory that programs can have without swapping, in bytes."""
    return int(psutil.virtual_memory().available)
