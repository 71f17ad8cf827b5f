"""Decides which entries of the queue train now. Pure.

Entries are ranked: by priority, then by turns, then by place. Each in its rank takes a slot, GPUs and memory if they
are there. What trains and got none is paused: a pause is exact, so a place can be taken at any moment and given back.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import EntryProgress, Stage
from trainerd.agent.when.conditions import WhenVerdict, use_of
from trainerd.text import counted, size


@dataclass(frozen=True)
class Room:
    """The resources of the machine for the queue.

    Attributes:
      slots: how many runs train at a time.
      gpus: the GPUs, by their numbers.
      memory_bytes: the memory that is available beside what the runs of the queue have.
      share_secs: after how long a run gives its place to a waiting one of the same priority; None: never.
      gpu_memory: the memory of each GPU that is free, or that runs of the queue have; without one that is not known.
    """

    slots: int
    gpus: tuple[int, ...]
    memory_bytes: int
    share_secs: float | None = None
    gpu_memory: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """An entry, with all that a decision needs.

    Attributes:
      name: its name.
      entry: what its file says.
      progress: its progress.
      verdict: whether `[when]` of its config lets it train.
    """

    name: str
    entry: QueueEntry
    progress: EntryProgress
    verdict: WhenVerdict

    @property
    def is_on(self) -> bool:
        """True if its process runs, or is about to."""
        return self.progress.stage.is_on

    def choose_gpus(self, free: Sequence[int], room: Room) -> tuple[tuple[int, ...], str]:
        """Return the GPUs that it takes of those that no run before it has, and what it lacks; empty for nothing.

        What the agent has started keeps its own. What a person has started may use any.
        """
        own = self.progress.gpus
        if self.is_on and not self.progress.is_by_hand:
            return own, "" if set(own) & set(room.gpus) <= set(free) else f"waits for {counted(len(own), 'GPU')}"
        count = self.entry.gpus_of(len(room.gpus))
        unfit = {} if self.progress.is_by_hand else {gpu: why for gpu in free if (why := self._why_unfit(gpu, room))}
        found = tuple([gpu for gpu in free if gpu not in unfit][:count])
        if len(found) == count:
            return found, ""
        why = f": {next(iter(unfit.values()))}" if len(free) >= count else ""
        return found, f"waits for {counted(count, 'GPU')}{why}"

    def _why_unfit(self, gpu: int, room: Room) -> str:
        """Return why it cannot train on a GPU, whichever run of the queue has that now; empty if it can."""
        need, there = self.progress.gpu_memory_bytes, room.gpu_memory.get(gpu)
        if gpu in self.verdict.busy_gpus:
            return use_of(gpu, self.verdict.busy_gpus[gpu])
        if there is not None and need > there:
            return f"it needs {size(need)} of memory, and {size(there)} are available on GPU {gpu}"
        return ""

    @property
    def has_begun(self) -> bool:
        """True if its process has done a step: before that it counts as one that has taken no memory yet."""
        return self.progress.stage in (Stage.TRAINING, Stage.PAUSING) and self.progress.turns > 0

    @property
    def held_bytes(self) -> int:
        """The memory that its process has taken."""
        return self.progress.memory_bytes if self.has_begun else 0


@dataclass(frozen=True)
class Decision:
    """The decision on one entry.

    Attributes:
      action: "start", "pause", "turn" for a new turn of one that trains, or "" for nothing.
      why: why it is paused or waits, for a person; empty if it trains, or is done.
      until: when that changes, if that is known.
      gpus: the GPUs that it gets.
    """

    action: str = ""
    why: str = ""
    until: datetime | None = None
    gpus: tuple[int, ...] = ()


def decide(candidates: Sequence[Candidate], room: Room, now: float) -> dict[str, Decision]:
    """Return the decision on each entry.

    Args:
      candidates: all entries.
      room: what the machine has.
      now: seconds since 1970 (UTC).
    """
    stages = {each.name: each.progress.stage for each in candidates}
    barred = {each.name: why for each in candidates if (why := _barrier(each, stages, now)) is not None}
    ranked = sorted(
        (each for each in candidates if each.name not in barred and _is_wanted(each)),
        key=lambda each: _rank(each, room, now),
    )
    granted, refused = _share_out(ranked, room, {each.name for each in candidates if each.is_on})
    takers = [name for name in granted if not stages[name].is_on]
    found = {each.name: _decision(each, barred, granted, refused, takers, candidates, room) for each in candidates}
    renewed = [each for each in candidates if each.name in granted and _is_turn_over(each, room, now)]
    return found | {each.name: replace(found[each.name], action="turn") for each in renewed}


def _is_wanted(each: Candidate) -> bool:
    return each.is_on or each.progress.stage is Stage.WAITING


def _barrier(each: Candidate, stages: Mapping[str, Stage], now: float) -> Decision | None:
    """Return why an entry must not train, whatever room there is; None if it may."""
    entry, progress = each.entry, each.progress
    if entry.paused:
        return Decision(why="by `trainerd queue pause`")
    if not each.verdict.may_train and not progress.overrides_when:
        return Decision(why=each.verdict.why, until=each.verdict.until)
    if each.is_on:
        return None
    if entry.after and not progress.turn_ended and stages.get(entry.after) is not Stage.DONE:
        found = stages.get(entry.after)
        return Decision(why=f"waits for {entry.after}, which is {found or 'not in the queue'}")
    if now < progress.again_at:
        return Decision(why=f"starts again later: {progress.why}", until=datetime.fromtimestamp(progress.again_at))
    return None


def _rank(each: Candidate, room: Room, now: float) -> tuple[float, ...]:
    """Return what entries are sorted by. What a person has started comes first, whatever the priorities.

    Of equal priorities those come first whose turn is not over, then those that wait, in the order in which their last
    turns ended, and then those whose turn is over, the fewest turns first.
    """
    entry, progress = each.entry, each.progress
    if progress.stage is Stage.PAUSING:
        turn: tuple[float, ...] = (3.0, 0.0, 0.0)
    elif each.is_on and not _is_turn_over(each, room, now):
        turn = (0.0, 0.0, 0.0)
    elif each.is_on:
        turn = (2.0, progress.turns, progress.turn_began)
    elif room.share_secs is not None:
        turn = (1.0, progress.turn_ended, progress.turn_before_ended)
    else:
        turn = (1.0, 0.0, 0.0)
    return (0.0 if progress.is_by_hand else 1.0, -entry.priority, *turn, entry.place)


def _is_turn_over(each: Candidate, room: Room, now: float) -> bool:
    progress = each.progress
    is_training = progress.stage is Stage.TRAINING and each.has_begun
    return room.share_secs is not None and is_training and now - progress.turn_began >= room.share_secs


def _share_out(
    ranked: Sequence[Candidate], room: Room, on: set[str]
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Give each entry in its rank what it needs.

    Args:
      ranked: the entries that may train.
      room: what the machine has.
      on: the entries whose process runs, or is about to.

    Returns:
      The GPUs of those that got all they need, and why the others did not.
    """
    granted, refused = dict[str, tuple[int, ...]](), dict[str, str]()
    slots = room.slots
    memory = room.memory_bytes + sum(each.held_bytes for each in ranked)
    holders = {gpu: place for place, each in enumerate(ranked) if each.is_on for gpu in each.progress.gpus}
    # First those that nobody has, and then those of the last in rank.
    free = sorted(room.gpus, key=lambda gpu: -holders.get(gpu, len(ranked)))
    for each in ranked:
        gpus, no_gpus = each.choose_gpus(free, room)
        available = None if each.is_on and not each.has_begun else memory
        if not each.progress.is_by_hand and (lack := _lack(each, slots, no_gpus, available, room)) is not None:
            refused[each.name] = lack or f"waits for a slot: {_names(list(granted))} first"
            continue
        slots, memory = slots - 1, memory - each.progress.memory_bytes
        free = [gpu for gpu in free if gpu not in gpus]
        granted[each.name] = gpus
    if not granted and not on:  # waiting gets nobody more memory
        alone = ((each, *each.choose_gpus(room.gpus, room)) for each in ranked)
        fits = ((each.name, gpus) for each, gpus, none in alone if _lack(each, room.slots, none, None, room) is None)
        granted.update(itertools.islice(fits, 1))
    return granted, refused


def _lack(each: Candidate, slots: int, no_gpus: str, memory: int | None, room: Room) -> str | None:
    """Return what an entry lacks, empty for a slot; None if it lacks nothing. Memory that is None is enough."""
    need = each.progress.memory_bytes
    wanted = each.entry.gpus_of(len(room.gpus))
    if not each.is_on and wanted > len(room.gpus):
        return f"needs {counted(wanted, 'GPU')}, and the agent has {len(room.gpus)}"
    if slots <= 0:
        return ""
    if no_gpus:
        return no_gpus
    if memory is not None and need > memory:
        return f"waits for memory: it needs {size(need)}, and {size(max(0, memory))} are available"
    return None


def _names(names: Sequence[str]) -> str:
    """Return names for a person, three at most."""
    more = [f"{len(names) - 3} more"] if len(names) > 3 else []
    *some, last = [*names[:3], *more]
    return f"{', '.join(some)} and {last}" if some else last


def _decision(
    each: Candidate,
    barred: Mapping[str, Decision],
    granted: Mapping[str, tuple[int, ...]],
    refused: Mapping[str, str],
    takers: Sequence[str],
    candidates: Sequence[Candidate],
    room: Room,
) -> Decision:
    stage = each.progress.stage
    if not _is_wanted(each):
        return Decision(why=each.progress.why)
    if stage is Stage.PAUSING:
        return Decision(why=each.progress.why, gpus=each.progress.gpus)
    if each.name in granted:
        gpus = granted[each.name]
        if each.is_on:
            return Decision(until=each.verdict.until, gpus=each.progress.gpus)
        still = _in_the_way(each, granted, candidates, room)
        return Decision(why=f"waits until {' and '.join(still)} paused") if still else Decision("start", gpus=gpus)
    if each.name in barred:
        found = barred[each.name]
    elif stage is Stage.TRAINING and takers:
        found = Decision(why=f"gives its place to {takers[0]}")
    else:
        found = Decision(why=refused[each.name])
    return replace(found, action="pause") if stage is Stage.TRAINING else found


def _in_the_way(
    each: Candidate, granted: Mapping[str, tuple[int, ...]], candidates: Sequence[Candidate], room: Room
) -> list[str]:
    """Return the runs that must have paused before this entry can start: they still have a slot, its GPUs, or memory
    that it needs."""
    on = [other for other in candidates if other.is_on]
    leaving = [other for other in on if other.name not in granted]
    named = {other.name: other for other in candidates}
    starting = [name for name in granted if not named[name].is_on]
    first = [named[name] for name in starting[: starting.index(each.name)]]
    promised = sum(other.progress.memory_bytes - other.held_bytes for other in [*on, *first])
    has_memory = each.progress.memory_bytes <= room.memory_bytes - promised
    has_slot = len(on) + len(first) < room.slots
    gpus = set(granted[each.name])
    return [
        other.name
        for other in leaving
        if not has_slot or gpus & set(other.progress.gpus) or (other.held_bytes and not has_memory)
    ]
