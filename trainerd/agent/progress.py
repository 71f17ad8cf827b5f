"""The progress of each entry of the queue, as the agent has seen it. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from trainerd.agent.entry import Moment, QueueEntry
from trainerd.errors import InUseError
from trainerd.rundir.request_files import AGENT, WATCHER
from trainerd.rundir.state import Phase, State

STOPS_SECS = 600.0  # from the watcher's pause until a machine that has not stopped counts as one that does not
AGAIN_SECS, MOST_SECS = 15.0, 600.0  # after a failure: the wait doubles, up to the second
BEGIN_SECS = 10.0  # within which a command that starts a run has taken its run directory
_SAID = "trainerd: "  # in front of an error that a command prints
_MORE = 1.1  # what counts as more memory than before
_OF_MACHINE = (f"({AGENT}: ", f"({WATCHER}: ", "(SIGTERM)")  # what asked for a pause that no person wanted


class Stage(enum.StrEnum):
    """The stages of an entry."""

    WAITING = "waiting"  # the agent starts it when it may train and there is room
    STARTING = "starting"  # the agent has started it, and it has not begun
    TRAINING = "training"
    PAUSING = "pausing"  # the agent has asked it to pause
    PAUSED = "paused"  # a person has paused it, or its entry
    DONE = "done"
    FAILED = "failed"

    @property
    def is_on(self) -> bool:
        """True if its process runs, or is about to."""
        return self in (Stage.STARTING, Stage.TRAINING, Stage.PAUSING)


@dataclass(frozen=True)
class EntryProgress:
    """The progress of one entry.

    Attributes:
      stage: its stage.
      since: the `since` of the entry that this is of: a newer one starts over.
      why: the reason of the stage, for a person; empty if it needs none.
      gpus: the GPUs that it has, by their numbers.
      turn_began, turn_ended: when its last turn began and ended, in seconds since 1970 (UTC). A turn begins with the
        first step, however long the start takes; until then `turn_began` is when the start began.
      turn_before_ended: when the turn before that ended: of two that ended at once, the one that waited longer is next.
      turns: how many turns it has had since it last started; 0 before its first step.
      failures, kills: how often it has failed, and its process was killed, since it last paused.
      again_at: when it may start again after a failure.
      memory_bytes: the most resident memory that its process was seen to have.
      gpu_memory_bytes: the most memory on one GPU that its process was seen to need.
      process: the process that trains, as its state.json names it; empty if it has not said so yet.
      left_by: the process that wrote state.json last, before the one that trains.
      is_by_hand: whether a person started the process that trains, and not the agent.
      overrides_when: whether a person started it while `[when]` did not let it train. It then trains until that has
        let it train, and does not any more.
    """

    stage: Stage = Stage.WAITING
    since: Moment = 0.0
    why: str = ""
    gpus: tuple[int, ...] = ()
    turn_began: Moment = 0.0
    turn_ended: Moment = 0.0
    turn_before_ended: Moment = 0.0
    turns: int = 0
    failures: int = 0
    kills: int = 0
    again_at: Moment = 0.0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    process: str = ""
    left_by: str = ""
    is_by_hand: bool = False
    overrides_when: bool = False


@dataclass(frozen=True)
class StartResult:
    """The end of the command that started a run.

    Attributes:
      code: its exit code.
      text: what it printed last.
    """

    code: int
    text: str


@dataclass(frozen=True)
class Observed:
    """The state of a run, as it is seen from outside.

    Attributes:
      is_running: whether a process trains it.
      state: its state.json; None if there is none.
      is_starting: whether the command that starts it ran a moment ago.
      started: how that command ended, if it has since the last look.
      is_removed: whether its run directory has no state.json, or does not exist while the folder that held it does.
    """

    is_running: bool = False
    state: State | None = None
    is_starting: bool = False
    started: StartResult | None = None
    is_removed: bool = False


def follow(entry: QueueEntry, before: EntryProgress, seen: Observed, now: float, *, may_train: bool) -> EntryProgress:
    """Return the progress of an entry after a check of its run.

    Args:
      entry: the entry.
      before: its progress at the last look.
      seen: the run.
      now: seconds since 1970 (UTC).
      may_train: whether `[when]` of its config lets it train now.
    """
    may_begin = seen.started is None and (seen.is_starting or _may_begin(before, seen, now))
    is_starting = before.stage is Stage.STARTING and may_begin
    if before.since != entry.since:  # a clock that was set back makes a new one smaller
        is_on = before.stage.is_on and (seen.is_running or is_starting)
        before = _over_again(before, entry, _process(seen.state), is_on=is_on)
    if seen.is_running:
        return _training(before, seen, now, may_train=may_train)
    if is_starting:
        return before
    if seen.is_removed and (before.process or before.left_by) and (before.stage.is_on or before.stage is Stage.WAITING):
        why = f"its run directory {entry.logdir} was removed. `trainerd queue resume NAME` trains it from step 0"
        return replace(_over_again(before, entry, "", is_on=False), stage=Stage.FAILED, why=why)
    if before.stage.is_on:
        return _ended(entry, before, seen, now)
    left_by = _process(seen.state) or before.process or before.left_by  # its disk may be late
    return before if (before.process, before.left_by) == ("", left_by) else replace(before, process="", left_by=left_by)


def _process(state: State | None) -> str:
    """Return the process that wrote a state; empty if none did."""
    return f"{state.pid} {state.uptime_at_start}" if state is not None else ""


def _over_again(before: EntryProgress, entry: QueueEntry, left_by: str, *, is_on: bool) -> EntryProgress:
    """Return the progress of an entry that was resumed. What is known of a process that runs, or starts, stays."""
    if is_on:
        return replace(before, since=entry.since, failures=0)
    return EntryProgress(
        since=entry.since,
        memory_bytes=before.memory_bytes,
        gpu_memory_bytes=before.gpu_memory_bytes,
        turn_ended=before.turn_ended,
        turn_before_ended=before.turn_before_ended,
        left_by=left_by,
    )


def _may_begin(before: EntryProgress, seen: Observed, now: float) -> bool:
    """Return whether a command that an agent started which is gone may still start the run."""
    has_begun = _process(seen.state) != before.left_by
    return not has_begun and 0.0 <= now - before.turn_began < BEGIN_SECS


def _training(before: EntryProgress, seen: Observed, now: float, *, may_train: bool) -> EntryProgress:
    after = _with_memory(before, seen.state)
    after = replace(after, overrides_when=before.overrides_when and not may_train)
    process = _process(seen.state)
    is_other = bool(before.process) and process not in (before.process, before.left_by)
    if process != before.left_by:
        after = replace(after, process=process)
    is_own = process != before.left_by  # an earlier process left another state
    has_begun = is_own and seen.state is not None and not seen.state.phase.is_before_training
    if before.stage in (Stage.TRAINING, Stage.PAUSING) and not is_other:
        return replace(after, turn_began=now, turns=1) if has_begun and before.turns == 0 else after
    # Whoever starts a process that was killed, such as systemd, is not a person.
    is_started_again = before.kills > 0 and before.stage is Stage.WAITING
    is_by_hand = before.stage is not Stage.STARTING and not is_started_again
    after = replace(after, stage=Stage.TRAINING, why="", turn_began=now, turns=int(has_begun))
    return replace(after, is_by_hand=is_by_hand, overrides_when=is_by_hand and not may_train)


def _with_memory(before: EntryProgress, state: State | None) -> EntryProgress:
    """Return the progress with the most memory that the run was seen to have; a little more than before is none."""
    if state is None:
        return before
    on_gpus = max((each.needed_bytes or 0 for each in state.devices), default=0)
    return replace(
        before,
        memory_bytes=_most(before.memory_bytes, state.memory_bytes),
        gpu_memory_bytes=_most(before.gpu_memory_bytes, on_gpus),
    )


def _most(before: int, found: int) -> int:
    return found if found > _MORE * before else before


def _ended(entry: QueueEntry, before: EntryProgress, seen: Observed, now: float) -> EntryProgress:
    """Return the progress of an entry whose process has ended."""
    state, result = seen.state, seen.started
    after = replace(_with_memory(before, state), turn_before_ended=before.turn_ended, turn_ended=now)
    after = replace(after, gpus=(), is_by_hand=False, overrides_when=False, why="")
    if result is not None and result.code == InUseError.exit_code:
        return replace(after, stage=Stage.WAITING, why=result.text, again_at=now + AGAIN_SECS)
    if result is not None and result.code:
        return _failed(entry, after, result.text, now)
    # What an earlier process left says nothing of this one.
    is_own = state is not None and (_process(state) != before.left_by or result is not None)
    phase = state.phase if state is not None and is_own else None
    ended = (state.ended if state is not None else None) or ""
    if phase is Phase.FINISHED:
        return replace(after, stage=Stage.DONE, why=ended, failures=0, kills=0)
    if phase is Phase.PAUSED:
        after = replace(after, stage=Stage.WAITING, why=ended, failures=0, kills=0)
        if before.stage is Stage.PAUSING:
            return after
        if not any(each in ended for each in _OF_MACHINE):
            return replace(after, stage=Stage.PAUSED)
        # It was asked to end with the machine, as by SIGTERM at a shutdown: it must not start again before that.
        return replace(after, again_at=now + (STOPS_SECS if f"({WATCHER}: " in ended else AGAIN_SECS))
    if phase is Phase.FAILED and state is not None:
        return _failed(entry, after, state.error or "it failed", now)
    if before.stage is Stage.STARTING and result is None:  # by an agent that is gone: the run never began
        return replace(after, stage=Stage.WAITING)
    wait = wait_after(after.kills)
    return replace(after, stage=Stage.WAITING, why="its process was killed", kills=after.kills + 1, again_at=now + wait)


def headline(printed: str) -> str:
    """Return the line of what a command printed that says why it failed."""
    lines = [*printed.strip().splitlines(), ""]
    return next((line for line in lines if line.startswith(_SAID)), lines[0]).removeprefix(_SAID)


def wait_after(times: int) -> float:
    """Return the seconds until the next start of what has ended badly so often before."""
    return min(MOST_SECS, AGAIN_SECS * 2.0 ** min(times, 10))


def _failed(entry: QueueEntry, after: EntryProgress, error: str, now: float) -> EntryProgress:
    wait = wait_after(after.failures)
    stage = Stage.FAILED if after.failures >= entry.retries else Stage.WAITING
    return replace(after, stage=stage, why=headline(error), failures=after.failures + 1, again_at=now + wait)
