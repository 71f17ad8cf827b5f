"""The checkpoint service: snapshots at a boundary, written in the background, announced when they are durable."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.disk_space import NoRoomError
from trainerd.checkpoints.lineage import Change
from trainerd.checkpoints.manifest import LOWEST, MEMORY, MINIMUM, About, Manifest
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.snapshot import Kept, Snapshot, UnsoundError
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.fingerprint import Fingerprint, are_of_one_call
from trainerd.config.schema import CheckpointConfig, Config
from trainerd.errors import JobError, StorageError
from trainerd.loop.autosave import MAX_SECS, Cadence
from trainerd.loop.boundary_state import BoundaryState
from trainerd.loop.contract import Savable
from trainerd.loop.flag import Flag, Request
from trainerd.loop.minima.minima import Minima
from trainerd.loop.recorder import Recorder
from trainerd.loop.schedule import ScheduleMark
from trainerd.rundir import request_files, run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.requests.answers import Answers
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import LastCheckpoint, MemoryTierState, Phase
from trainerd.system.backoff import Backoff
from trainerd.system.still import Still
from trainerd.system.threads import Background
from trainerd.text import next_start

log = logging.getLogger(__name__)

POLL_SECS = 0.5
_DAY = 86400.0  # seconds
_OFF_SECS = 60.0  # after which a save to memory that was not possible is tried again
_OTHER = -1  # in place of the changes of a session
_FAILED = "the last save failed"
_HANGS = "a save hangs"


@dataclass
class Save:
    """One snapshot on its way to the disk.

    Attributes:
      step, about: its boundary.
      ids: of the commands that wait for it.
      changes: of the session, when its snapshot was taken.
      error: why it could not be made; None while it is under way, and where it was.
      is_to_memory: whether it goes to memory, and not to the disk. It gives way to every other.
      done: set when it is over.
      still: for how long it has made no progress.
    """

    step: int
    about: About
    ids: list[str] = field(default_factory=list)
    changes: int = 0
    error: StorageError | UnsoundError | None = None
    is_to_memory: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    still: Still = field(default_factory=Still)


class _GaveWay(Exception):
    """A save to memory ended early, since another save waits."""


class Checkpointer:
    """Saves one session's state through the store, one snapshot at a time.

    So memory holds one snapshot at most beside the state.

    One class, since its methods are the moments of one save, which two threads share.

    Args:
      rundir: the run directory.
      store: what makes a snapshot durable.
      recorder: has the points of the curves, which are on disk before each checkpoint.
      reporter: shows each checkpoint and each failure.
      flag: raised when a save has ended.
      writer: the thread that writes.
      before_save: called with the step before its state is taken; None for nothing. It expects a checkpoint each time,
        so if there is one, nothing is saved to memory.
      timer: seconds on a clock that is never set.

    Attributes:
      answers: answers the commands that wait.
      cadence: learns what each save costs.
      lineage: what was done to the run so far; see `Manifest`.
      minima: keeps the state at the minima of the loss.
      retry_at: when a failed save is tried again, in seconds of the timer; infinity if none is.
    """

    def __init__(
        self,
        rundir: RunDirectory,
        store: CheckpointStore,
        recorder: Recorder,
        reporter: Reporter,
        flag: Flag,
        *,
        writer: Background | None = None,
        before_save: Callable[[int], None] | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.answers = Answers(reporter)
        self.retry_at = math.inf
        self.cadence = Cadence(ScheduleMark(0, timer()))
        self._kept: Kept = "auto"
        self.lineage: tuple[Change, ...] = ()
        self.minima = Minima(CheckpointConfig(), lambda step, loss: recorder.mark("minimum", step, loss), timer=timer)
        self._hang_secs = 300.0  # without progress, after which a save counts as hung
        self._fingerprint: Fingerprint = {}
        self._recorder = recorder
        self._rundir = rundir
        self._reporter = reporter
        self._flag = flag
        self._writer = writer or Background("trainerd-checkpoint")
        self._timer = timer
        self._before_save = before_save
        self._last: LastCheckpoint | None = None
        self._now: Save | None = None
        self._next: Save | None = None  # asked for while another was under way; its snapshot is not taken yet
        self._unsound: Save | None = None
        self._is_unfinished = False  # whether the last checkpoint has services that are still to be done
        self._changes = 0  # of the session when the last checkpoint's snapshot was taken
        self._backoff = Backoff()
        self._left_out: StorageError | None = None  # of a state that was not whole
        self._needs = 0  # bytes, where a save waits for room
        self._is_closing = False
        self._is_last = False  # whether somebody waits for the save under way, and gets its error
        self._is_awaited = False  # whether the loop waits for the save under way
        self._trained_before = 0.0
        self._began_at = timer()

    @property
    def saved_step(self) -> int:
        """The step of the newest checkpoint of this line of training; 0 if there is none."""
        return self._last.step if self._last else 0

    @property
    def is_busy(self) -> bool:
        """True if a checkpoint is being written."""
        return self._now is not None and not self._now.done.is_set()

    @property
    def next_start(self) -> str:
        """The words for what the next start does; see `text.next_start`."""
        return next_start(self._reporter.state.resume_step)

    def resumed(self, found: Manifest) -> None:
        """Record that the run resumes from this checkpoint."""
        self._last = catalogue.as_last(self._rundir, found)
        self._changes = found.step
        self._is_unfinished = bool(found.unfinished)
        self.lineage = found.lineage
        self._trained_before = found.trained_secs
        self._reporter.update(
            step=found.step,
            metrics=dict(found.metrics),
            measured=dict(found.measured),
            last_checkpoint=self._last,
            memory_tier=MemoryTierState(),
        )

    def reconfigure(self, config: Config, policy: Policy) -> None:
        """Use these settings from now on.

        Args:
          config: how the loss is followed, what saves may cost, and when one counts as hung.
          policy: which checkpoints are kept.
        """
        self.store.keep(policy)
        self.minima.reconfigure(config.checkpoint)
        self.cadence.disk.allow(config.checkpoint.max_overhead)
        is_possible = self._before_save is None and self.store.memory.is_possible
        self.cadence.memory.allow(config.checkpoint.memory_overhead if is_possible else 0.0)
        self._kept = config.checkpoint.snapshot
        self._hang_secs = config.watchdog.save_secs or math.inf

    def describe_run(self, fingerprint: Fingerprint) -> None:
        """Have manifests say that the run is trained with this."""
        self._fingerprint = fingerprint

    def is_of_this_call(self, found: Manifest) -> bool:
        """Return whether a checkpoint is of the same call of `fit` as this run; see `are_of_one_call`."""
        return are_of_one_call(found.fingerprint, self._fingerprint)

    def changed(self, lineage: Sequence[Change], *, at: int) -> None:
        """Record that the run was changed at this boundary. Its state is neither saved nor held as a minimum.

        Args:
          lineage: all that was done to it so far.
          at: the step.
        """
        self.minima.forget(at)
        self.lineage = tuple(lineage)
        self._changes = _OTHER

    def know_more(self, known: Mapping[Change, Change]) -> None:
        """Replace changes in the lineage by those that are known better."""
        self.lineage = tuple(known.get(each, each) for each in self.lineage)

    def begin(self, mark: ScheduleMark) -> None:
        """Record that training begins at this boundary."""
        self.cadence.begin(ScheduleMark(mark.step, self._training_time()))
        self._began_at = mark.now

    def _training_time(self) -> float:
        """Return the timer, without the time of evaluations and summaries, which saves do not cause."""
        return self._timer() - self._recorder.took

    # ------------------------------------------------------------------ on the loop's thread, at a boundary

    def start(
        self, session: Savable, reason: str, ids: list[str] | None = None, unfinished: Sequence[str] = ()
    ) -> None:
        """Take a snapshot and return; its checkpoint is announced when it is durable.

        While another save is under way, no snapshot is taken. A request is then served right after that save, since
        its checkpoint must begin after the request. A scheduled save is skipped, and also while a failed save waits to
        be tried again. A save to memory ends early for any other.

        Args:
          session: the model.
          reason: why it is saved, for the manifest.
          ids: the ids of the commands that wait for an answer.
          unfinished: the services that are still to be done at this boundary.

        Raises:
          JobError: the save before was of a state that must not be saved.
          StorageError: it hangs.
        """
        self._require_sound()
        if reason == "retry":
            self.retry_at = math.inf
        if reason == "schedule" and self.retry_at < math.inf:
            return
        if self.is_busy and self._now is not None and self._now.is_to_memory:
            self.wait()
            self.note_end(session)
        if self.is_busy:
            if reason not in ("schedule", "retry"):
                waiting = self._next.ids if self._next else []
                self._next = Save(0, About(reason), waiting + (ids or []))
            return
        step = session.step
        if self._is_saved(session, unfinished):
            log.info("step %d is saved already", step, extra={"event": "checkpoint", "step": step})
            self.answers.give(ids or [], step, None)
            return
        if not session.has_all_variables:
            self._leave_out(step, ids or [])
            return
        self._left_out = None
        self._look(session, is_saved=True)
        if self._before_save is not None:
            self._before_save(step)
        mark = ScheduleMark(step, self._training_time())
        changes, snapshot = session.changes, session.snapshot(self._kept)
        self._needs, self.retry_at = 0, math.inf
        self.cadence.begins(self.cadence.disk, mark)
        self._reporter.update(saving=step)
        save = Save(step, self._about(reason, step, unfinished), ids or [], changes)
        self._submit(save, snapshot, self.minima.to_save_with(step))

    def start_to_memory(self, session: Savable) -> None:
        """Take a snapshot, and write it to memory in the background; not while another save is under way.

        Raises:
          JobError: the save before was of a state that must not be saved.
        """
        self._require_sound()
        if self.is_busy or not session.has_all_variables or self._is_saved(session, ()):
            return
        mark = ScheduleMark(session.step, self._training_time())
        save = Save(session.step, self._about(MEMORY, session.step), is_to_memory=True)
        snapshot = session.snapshot(self._kept)
        self.cadence.begins(self.cadence.memory, mark)
        self._now = save

        def write() -> None:
            self._write_to_memory(save, snapshot)
            save.done.set()
            self._flag.raise_for(Request.TICK)

        self._writer.submit(write)

    @property
    def memory_secs(self) -> float:
        """The seconds between two saves to memory; 0 for none."""
        secs = self.cadence.memory.secs
        return max(secs, _OFF_SECS) if secs and self._reporter.state.memory_tier.off else secs

    def secs_for(self, disk_writes_per_day: float) -> float:
        """Return the seconds between checkpoints that write as much as the last one, for so many GB (10^9 B) a day."""
        return min(MAX_SECS, self.store.written * _DAY / (disk_writes_per_day * 1e9))

    def _about(self, reason: str, step: int, unfinished: Sequence[str] = ()) -> About:
        """Return the known facts about this boundary."""
        return About(
            reason,
            dict(self._reporter.state.metrics),
            self._trained_before + self._timer() - self._began_at,
            self._fingerprint,
            tuple(unfinished),
            self.minima.minimum_at(step),
            self.minima.described(),
            self.lineage,
            dict(self._reporter.state.measured),
        )

    def _submit(self, save: Save, snapshot: Snapshot, lowest: BoundaryState | None = None) -> None:
        """Have the writer's thread make a checkpoint, and one of the lowest boundary of the valley after it."""
        self._now = save
        held = lowest.take() if lowest is not None else None

        def write() -> None:
            is_saved = self._write(save, snapshot)
            if lowest is not None and held is not None:
                self._write_lowest(lowest, held, is_saved=is_saved)
            self._end(save)

        self._writer.submit(write)

    def look_for_minimum(self, model: Savable) -> None:
        """Check the loss of this boundary. Save a minimum that is known now, if no other save is under way."""
        self._look(model)
        self._save_minimum()

    def _save_minimum(self) -> None:
        if self.is_busy or (found := self.minima.take_confirmed()) is None:
            return
        if (snapshot := found.take()) is not None:
            self._submit(Save(found.step, found.about, changes=found.changes), snapshot)

    def _look(self, model: Savable, *, is_saved: bool = False) -> None:
        self.minima.consider(model, self._about(MINIMUM, model.step), is_saved=is_saved)

    def _is_saved(self, session: Savable, unfinished: Sequence[str]) -> bool:
        """Return whether the last checkpoint is of this state, and its services are done if none is unfinished."""
        is_last = self._last is not None and self._last.step == session.step and self._changes == session.changes
        return is_last and (bool(unfinished) or not self._is_unfinished)

    def _leave_out(self, step: int, ids: list[str]) -> None:
        why = (
            f"step {step} is not saved: what was restored has not all its variables yet, and the rest would be lost. "
            f"The next start {self.next_start}"
        )
        log.warning("%s", why, extra={"event": "save-failed", "step": step})
        self._left_out = StorageError(why)
        self.answers.give(ids, None, why)

    def note_end(self, session: Savable) -> bool:
        """Take note of what the save that ended has cost. Call it at each boundary, before another save may begin.

        Returns:
          Whether one has ended: what it cost may have changed the schedule.
        """
        if has_ended := self.cadence.is_saving and not self.is_busy:
            is_made = self._now is not None and self._now.error is None
            self.cadence.ended(ScheduleMark(session.step, self._training_time()), is_made=is_made)
        return has_ended

    def finish_save(self, session: Savable) -> bool:
        """Take note of the save that ended, and begin the one that waits for it. The loop calls this at every boundary.

        Returns:
          Whether one has ended; see `note_end`.

        Raises:
          JobError: it was of a state that must not be saved.
        """
        has_ended = self.note_end(session)
        self._require_sound()
        if self._next is not None and not self.is_busy:
            waiting, self._next = self._next, None
            self.start(session, waiting.about.reason, waiting.ids)
        return has_ended

    def _require_sound(self) -> None:
        if (save := self._unsound) is not None:
            self.forget_memory()
            raise JobError(
                f"{save.error} after step {save.step}, so that step was not saved. The next start "
                f"{self.next_start}. To save such values all the same, set `stop_on_nan = false`.",
                step=save.step,
                sound=False,
            )

    def watch(self) -> None:
        """Watch the save that is under way. The loop calls this about once a second.

        It warns of a save that hangs, and removes the warning when the save moves again. It has a save that found no
        room tried again as soon as there is room.
        """
        with contextlib.suppress(StorageError):  # then it is not known, and tried again in its time
            if self._needs and self.store.space.has(self._needs):
                self._needs, self.retry_at = 0, self._timer()
        save = self._now
        if save is not None and not save.done.is_set() and self._is_hung(save):
            self._reporter.warn(
                f"{_HANGS}: step {save.step}, no progress for {self._hang_secs:g} s. `dmesg` shows errors of the disk."
            )
        else:
            self._reporter.unwarn(_HANGS)

    def finish(
        self,
        session: Savable,
        reason: str,
        *,
        is_last: bool = True,
        ids: Sequence[str] = (),
        unfinished: Sequence[str] = (),
    ) -> None:
        """Make a checkpoint of this boundary and wait until it is durable.

        Args:
          session: the model.
          reason: why it is saved, for the manifest.
          is_last: whether no save follows. A last save that fails is not tried again.
          ids, unfinished: see `start`.

        Raises:
          StorageError: it could not be made.
          JobError: the state must not be saved.
        """
        with self._reporter.phase(Phase.SAVING), self._as_last() if is_last else contextlib.nullcontext():
            self.wait()
            begins = not self._last and session.step == 0 == session.changes  # there is nothing to save
            if self._next is not None or ids or not (begins or self._is_saved(session, unfinished)):
                waiting, self._next = self._next, None
                self.start(session, reason, [*(waiting.ids if waiting else ()), *ids], unfinished)
                self.wait()
            failed = self._now.error if self._now and self._now.about.reason not in (MINIMUM, MEMORY) else None
            self._save_minimum()
            self.wait()
            if self._left_out is not None:
                raise self._left_out
        if isinstance(failed, UnsoundError):
            self._require_sound()
        elif failed is not None:
            raise failed
        if is_last:
            self.forget_memory()

    def forget_memory(self) -> None:
        """Remove what is in memory: the disk has it, or it is not to be resumed."""
        self.store.memory.clear()
        self._reporter.set(memory_tier=MemoryTierState())

    @contextlib.contextmanager
    def _as_last(self) -> Iterator[None]:
        self._is_last = True
        try:
            yield
        finally:
            self._is_last = False

    def close(self) -> None:
        """End the thread that writes, unless it hangs. No save follows."""
        self._is_closing = True
        self._writer.close(POLL_SECS)

    def wait_for_save(self) -> None:
        """Wait until another save can begin, but not for a save that hangs."""
        if self.is_busy:
            with self._reporter.phase(Phase.SAVING), contextlib.suppress(StorageError):
                self.wait()

    def wait(self) -> None:
        """Wait until the save that is under way has ended, with success or not.

        Raises:
          StorageError: it hangs.
        """
        save, self._is_awaited = self._now, True
        try:
            while save is not None and not save.done.wait(POLL_SECS):
                if self._is_hung(save):
                    where = "memory" if save.is_to_memory else self._rundir.path
                    how = "" if save.is_to_memory else " `dmesg` shows errors of the disk."
                    raise StorageError(
                        f"the save of step {save.step} to {where} makes no progress for "
                        f"{self._hang_secs:g} s, so the run ends without it. The next start {self.next_start}.{how}"
                    )
        finally:
            self._is_awaited = False

    def _is_hung(self, save: Save) -> bool:
        return save.still.secs(self.store.progress(), self._timer()) >= self._hang_secs

    # ------------------------------------------------------------------ on the writer's thread

    def _write(self, save: Save, snapshot: Snapshot) -> bool:
        """Write a checkpoint. Returns whether it is on disk; if it is not, the reason is reported."""
        try:
            self._recorder.sync()  # a run that is killed after the checkpoint has no gap before it
            self.store.publish(snapshot, save.about, lambda saved: self._announce(save, saved))
        except UnsoundError as error:
            save.error = error
            self._unsound = save
            self.answers.give(save.ids, None, str(error))
        except StorageError as error:
            self._fail(save, error)
        except Exception as error:
            log.exception("an error of trainerd's own, in a save")
            self._fail(save, StorageError(f"the save of step {save.step} failed: {type(error).__name__}: {error}"))
        finally:
            snapshot.release()
        return save.error is None

    def _write_to_memory(self, save: Save, snapshot: Snapshot) -> None:
        """Write a state to memory, unless another save waits. If it cannot be written, the state says why."""

        def moved(size: int) -> None:
            if self._is_awaited:
                raise _GaveWay

        try:
            self._recorder.flush()
            saved = self.store.write_to_memory(snapshot, save.about, moved)
            path = str(self.store.memory.folder)
            self._reporter.set(memory_tier=MemoryTierState(saved.step, saved.at, saved.size, path))
        except _GaveWay:
            save.error = StorageError("another save waits")
        except UnsoundError as error:
            save.error, self._unsound = error, save
        except StorageError as error:
            save.error = error
            self._reporter.set(memory_tier=replace(self._reporter.state.memory_tier, off=str(error)))
        except Exception as error:
            log.exception("an error of trainerd's own, in a save to memory")
            save.error = StorageError(f"{type(error).__name__}: {error}")
            self._reporter.set(memory_tier=replace(self._reporter.state.memory_tier, off=str(save.error)))
        finally:
            snapshot.release()

    def _write_lowest(self, lowest: BoundaryState, snapshot: Snapshot, *, is_saved: bool) -> None:
        """Write the lowest boundary of a valley beside a later checkpoint, whose loss has not turned up yet."""
        if not is_saved:
            lowest.give_back(snapshot)
            return
        if not self._write(Save(lowest.step, replace(lowest.about, reason=LOWEST)), snapshot):
            log.warning("the minimum of the loss at step %d could not be kept", lowest.step)

    def _end(self, save: Save) -> None:
        """End a save. Then delete checkpoints that retention gives up, until another save waits."""
        try:
            self._reporter.update(saving=None)
        finally:  # even if an observer fails: the loop may wait for this
            save.done.set()
            self._flag.raise_for(Request.TICK)
        while not (self._is_closing or self.is_busy) and self.store.tidy():
            pass  # until another save waits

    def _announce(self, save: Save, saved: LastCheckpoint) -> None:
        if self._last is None or saved.step >= self._last.step:  # else it is a minimum, which is known late
            self._last, self._changes, self._is_unfinished = saved, save.changes, bool(save.about.unfinished)
        self.minima.forget(saved.step)
        self._backoff.succeeded()
        self._needs = 0
        request_files.consume(self._rundir.accept_job)  # from here on the run is of this job
        self._reporter.unwarn(_FAILED)
        log.info(
            "saved step %d (%s) in %.2f s: %s",
            saved.step,
            saved.reason,
            saved.seconds,
            saved.path,
            extra={"event": "checkpoint", "step": saved.step, "reason": saved.reason},
        )
        self._reporter.set(last_checkpoint=self._last, saving=None, failure=None)
        self.answers.give(save.ids, saved.step, None)

    def _fail(self, save: Save, error: StorageError) -> None:
        """Report the failure at once. The save is tried again after a wait that doubles each time."""
        save.error = error
        self._needs = error.needed if isinstance(error, NoRoomError) else 0
        self.retry_at = self._timer() + self._backoff.failed()
        again = ""
        if not self._is_last:
            again = " The run is saved as soon as there is room." if self._needs else " It will be retried."
        log.error("%s: %s%s", _FAILED, error, again, extra={"event": "save-failed", "step": save.step})
        run_events.add(self._rundir, EventKind.SAVE_FAILED, str(error), step=save.step)
        self._reporter.unwarn(_FAILED)  # of an earlier step
        self._reporter.warn(f"{_FAILED}: {error}{again}")
        self.answers.give(save.ids, None, str(error))
