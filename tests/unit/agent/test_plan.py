"""The plan: which runs of the queue train, for any queue and any machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from trainerd.agent.entry import QueueEntry
from trainerd.agent.plan import Candidate, Decision, Room, decide
from trainerd.agent.progress import EntryProgress, Observed, Stage, follow
from trainerd.agent.when.conditions import WhenVerdict
from trainerd.rundir.state import Phase, State

ROOM = Room(slots=1, gpus=(), memory_bytes=100)
NOW = 1_000_000.0
ANY_TIME = WhenVerdict(True)


def run(
    name: str,
    stage: Stage = Stage.WAITING,
    *,
    priority: int = 0,
    place: float = 0.0,
    needs: int = 0,
    after: str = "",
    paused: bool = False,
    verdict: WhenVerdict = ANY_TIME,
    **progress: Any,
) -> Candidate:
    """An entry of the queue; `progress` has fields of its progress. One that trains has done a step."""
    progress = {"turns": int(stage in (Stage.TRAINING, Stage.PAUSING))} | progress
    entry = QueueEntry(config="a.toml", logdir=name, folder="/", priority=priority, place=place, gpus=needs)
    entry = replace(entry, after=after, paused=paused)
    return Candidate(name, entry, EntryProgress(stage, **progress), verdict)


def actions(candidates: Sequence[Candidate], room: Room = ROOM, now: float = NOW) -> dict[str, str]:
    """What is done, by name; without those for which nothing is."""
    return {name: found.action for name, found in decide(candidates, room, now).items() if found.action}


def started(candidates: Sequence[Candidate], room: Room) -> dict[str, tuple[int, ...]]:
    """The GPUs of each run that is started."""
    return {name: each.gpus for name, each in decide(candidates, room, NOW).items() if each.action == "start"}


# ---------------------------------------------------------------------- slots and priorities


def test_the_first_of_a_priority_takes_the_slot() -> None:
    queue = [run("b", place=2), run("a", place=1), run("c", place=3)]
    assert actions(queue) == {"a": "start"}
    assert decide(queue, ROOM, NOW)["c"].why == "waits for a slot: a first"


def test_a_higher_priority_pauses_a_lower_one_then_starts() -> None:
    low, high = run("low", Stage.TRAINING), run("high", priority=1)
    found = decide([low, high], ROOM, NOW)
    assert found["low"] == Decision("pause", why="gives its place to high")
    assert found["high"] == Decision(why="waits until low paused")
    pausing = run("low", Stage.PAUSING, why="gives its place to high")
    assert actions([pausing, high]) == {}
    assert actions([run("low"), high]) == {"high": "start"}


def test_a_place_is_given_back() -> None:
    assert actions([run("low", place=2), run("high", Stage.DONE, priority=1), run("new", place=3)]) == {"low": "start"}


def test_equal_priorities_do_not_pause_each_other() -> None:
    assert actions([run("first", place=1), run("trains", Stage.TRAINING, place=2)]) == {}


def test_only_as_many_are_paused_as_the_higher_priorities_need() -> None:
    on = [run(name, Stage.TRAINING, place=place) for place, name in enumerate("abc")]
    room = replace(ROOM, slots=3)
    assert actions([*on, run("high", priority=1)], room) == {"c": "pause"}
    assert actions(on, replace(ROOM, slots=1)) == {"b": "pause", "c": "pause"}


def test_a_run_that_starts_is_not_paused_before_it_trains() -> None:
    high = run("high", priority=1)
    assert actions([run("low", Stage.STARTING), high]) == {}
    assert actions([run("low", Stage.TRAINING), high]) == {"low": "pause"}


def test_what_has_ended_takes_no_place() -> None:
    over = [run("failed", Stage.FAILED, why="boom"), run("done", Stage.DONE), run("paused", Stage.PAUSED)]
    assert actions([*over, run("next")]) == {"next": "start"}
    assert decide(over, ROOM, NOW)["failed"].why == "boom"


def test_a_failure_that_is_tried_again_does_not_block_the_others() -> None:
    again = run("again", priority=9, again_at=NOW + 15, why="boom")
    found = decide([again, run("next")], ROOM, NOW)
    assert found["next"].action == "start"
    assert found["again"].why == "starts again later: boom"
    assert found["again"].until == datetime.fromtimestamp(NOW + 15)
    assert actions([again, run("next")], now=NOW + 15) == {"again": "start"}


# ---------------------------------------------------------------------- by hand, paused, chains, [when]


def test_what_a_person_started_is_paused_for_nobody() -> None:
    by_hand = run("mine", Stage.TRAINING, priority=-5, is_by_hand=True)
    assert actions([by_hand, run("high", priority=9)]) == {}
    on = run("on", Stage.TRAINING)
    assert actions([by_hand, on]) == {"on": "pause"}


def test_what_a_person_started_beyond_the_room_trains() -> None:
    by_hand = [run(name, Stage.TRAINING, needs=9, is_by_hand=True) for name in "abc"]
    assert actions([*by_hand, run("next")], Room(slots=2, gpus=(0,), memory_bytes=0)) == {}


def test_a_paused_entry_is_paused_and_not_started() -> None:
    assert actions([run("a", Stage.TRAINING, paused=True), run("b")]) == {"a": "pause"}
    assert actions([run("a", paused=True), run("b")]) == {"b": "start"}
    assert "queue pause" in decide([run("a", paused=True)], ROOM, NOW)["a"].why


def test_a_chain_waits_until_the_one_before_is_done() -> None:
    for stage in set(Stage) - {Stage.DONE}:
        found = decide([run("first", stage), run("second", after="first", priority=9)], replace(ROOM, slots=2), NOW)
        assert found["second"] == Decision(why=f"waits for first, which is {stage}")
    assert actions([run("first", Stage.DONE), run("second", after="first")]) == {"second": "start"}
    assert decide([run("second", after="gone")], ROOM, NOW)["second"].why == "waits for gone, which is not in the queue"
    assert actions([run("second", Stage.TRAINING, after="gone")]) == {}


def test_when_holds_a_run_back_until_its_hours() -> None:
    night = datetime(2030, 1, 1, 20)
    closed = WhenVerdict(False, "waits until 20:00", night)
    assert decide([run("a", verdict=closed)], ROOM, NOW)["a"] == Decision("", "waits until 20:00", night)
    assert actions([run("a", Stage.TRAINING, verdict=closed), run("b")]) == {"a": "pause"}
    assert actions([run("a", Stage.TRAINING, verdict=closed, overrides_when=True)]) == {}


# ---------------------------------------------------------------------- GPUs and memory

TWO = Room(slots=2, gpus=(0, 1), memory_bytes=100)


def test_each_run_gets_gpus_of_its_own() -> None:
    assert started([run("a", needs=1, place=1), run("b", needs=1, place=2)], TWO) == {"a": (0,), "b": (1,)}
    assert started([run("a", needs=2, place=1), run("b", needs=1, place=2)], TWO) == {"a": (0, 1)}
    assert started([run("on", Stage.TRAINING, needs=1, gpus=(0,)), run("b", needs=1)], TWO) == {"b": (1,)}
    assert started([run("a"), run("b", needs=2)], TWO) == {"a": (), "b": (0, 1)}


def test_a_higher_priority_gets_the_gpu_of_the_run_that_was_paused_for_it() -> None:
    """The run that stays keeps its own GPU, whatever its number."""
    low = [run(name, Stage.TRAINING, needs=1, place=gpu, gpus=(gpu,)) for gpu, name in enumerate("ab")]
    high = run("high", needs=1, priority=1)
    assert actions([*low, high], TWO) == {"b": "pause"}
    assert started([low[0], run("b", needs=1), high], TWO) == {"high": (1,)}
    many = Room(slots=9, gpus=(0, 1), memory_bytes=100)
    assert started([low[0], run("b", needs=1), high], many) == {"high": (1,)}


def test_a_run_keeps_its_gpus_when_its_entry_asks_for_others() -> None:
    """The new number counts from its next start on. Until then nobody else gets what it has."""
    on = run("on", Stage.TRAINING, needs=0, gpus=(0, 1))
    assert started([on, run("b", needs=1)], TWO) == {}
    assert actions([run("on", Stage.TRAINING, needs=9, gpus=(0,)), run("b", needs=1)], TWO) == {"b": "start"}


def test_a_run_that_needs_more_gpus_than_there_are_waits_and_blocks_nobody() -> None:
    found = decide([run("a", needs=3, priority=9), run("b", needs=1)], TWO, NOW)
    assert found["a"] == Decision(why="needs 3 GPUs, and the agent has 2")
    assert found["b"].action == "start"


def test_two_gpus_are_freed_for_one_run() -> None:
    low = [run(name, Stage.TRAINING, needs=1, gpus=(gpu,)) for gpu, name in enumerate("ab")]
    assert actions([*low, run("high", needs=2, priority=1)], TWO) == {"a": "pause", "b": "pause"}
    left = [run("a", needs=1), low[1], run("high", needs=2, priority=1)]
    assert actions(left, TWO) == {"b": "pause"}


@pytest.mark.parametrize("needs", [1, 2])
def test_no_gpu_has_two_runs_for_any_order(needs: int) -> None:
    room = Room(slots=3, gpus=(0, 1, 2, 3), memory_bytes=100)
    on = [run("x", Stage.TRAINING, needs=1, gpus=(3,)), run("y", Stage.PAUSING, needs=2, gpus=(0, 2), priority=1)]
    waiting = [run("z", needs=needs, priority=5), run("w", needs=1, priority=2)]
    found = started([*on, *waiting], room)
    given = [gpu for each in on for gpu in each.progress.gpus] + [gpu for gpus in found.values() for gpu in gpus]
    assert len(given) == len(set(given)), found


def test_a_run_gets_the_gpus_that_others_leave_free() -> None:
    busy = WhenVerdict(True, busy_gpus={0: 7})
    assert started([run("a", needs=1, verdict=busy), run("b", needs=1, place=1)], TWO) == {"a": (1,), "b": (0,)}
    assert started([run("a", needs=0, verdict=busy)], TWO) == {"a": ()}
    found = decide([run("a", needs=2, verdict=busy)], TWO, NOW)
    assert found["a"] == Decision(why="waits for 2 GPUs: another process (pid 7) uses GPU 0")


def test_a_run_waits_for_the_memory_of_a_gpu_that_it_was_seen_to_need() -> None:
    room = replace(TWO, gpu_memory={0: 49, 1: 50})
    large = [run(name, needs=1, gpu_memory_bytes=50, place=place) for place, name in enumerate("ab")]
    assert started([*large, run("c", needs=1, place=2)], room) == {"a": (1,), "c": (0,)}
    found = decide([large[0], replace(large[1], entry=replace(large[1].entry, gpus=2))], room, NOW)
    assert found["b"].why == "waits for 2 GPUs"
    found = decide([large[0]], replace(TWO, gpus=(0,), gpu_memory={0: 49}), NOW)
    assert found["a"].why == "waits for 1 GPU: it needs 50 B of memory, and 49 B are available on GPU 0"


def test_a_higher_priority_takes_the_one_gpu_that_it_can_have() -> None:
    high = run("high", needs=1, priority=1, verdict=WhenVerdict(True, busy_gpus={0: 7}))
    found = decide([run("low", Stage.TRAINING, needs=1, gpus=(1,)), high], TWO, NOW)
    assert found["low"].action == "pause" and found["high"].why == "waits until low paused"
    assert started([run("low", needs=1), high], TWO) == {"low": (0,), "high": (1,)}


def test_a_run_waits_for_the_memory_that_it_was_seen_to_need() -> None:
    found = decide([run("a", memory_bytes=101), run("b", place=1)], ROOM, NOW)
    assert found["a"].why.startswith("waits for memory: it needs 101 B") and found["b"].action == "start"
    room = replace(ROOM, slots=2)
    assert actions([run("on", Stage.TRAINING, memory_bytes=500), run("b", memory_bytes=100)], room) == {"b": "start"}
    assert actions([run("on", Stage.TRAINING, memory_bytes=500), run("b", memory_bytes=101)], room) == {}
    assert actions([run("a", memory_bytes=60), run("b", memory_bytes=60, place=1)], room) == {"a": "start"}


def test_a_run_that_needs_more_memory_than_there_is_trains_alone() -> None:
    """It was killed for it, or counted pages that the kernel can drop: waiting gets it no more."""
    large, other = run("large", memory_bytes=101), run("other", Stage.TRAINING, memory_bytes=10)
    larger = run("larger", memory_bytes=200, place=1)
    assert actions([large], ROOM) == actions([large, larger], ROOM) == {"large": "start"}
    assert actions([large, other], replace(ROOM, slots=2)) == {}
    assert actions([run("large", memory_bytes=101, needs=1)], ROOM) == {}


def test_memory_that_a_starting_run_has_not_taken_yet_is_not_given_away() -> None:
    room = replace(ROOM, slots=2)
    assert actions([run("a", Stage.STARTING, memory_bytes=60), run("b", memory_bytes=60)], room) == {}
    assert actions([run("a", Stage.TRAINING, memory_bytes=60, turns=0), run("b", memory_bytes=60)], room) == {}


def test_a_higher_priority_gets_the_memory_of_a_lower_one() -> None:
    room = replace(ROOM, slots=2)
    high = run("high", memory_bytes=300, priority=1)
    found = decide([run("low", Stage.TRAINING, memory_bytes=250), high], room, NOW)
    assert found["low"].action == "pause" and found["high"].why == "waits until low paused"
    assert actions([run("low", memory_bytes=250), high], replace(room, memory_bytes=350)) == {"high": "start"}


# ---------------------------------------------------------------------- turns

SHARE = 30.0


def look(entry: QueueEntry, before: EntryProgress, now: float) -> EntryProgress:
    """The progress after a second: a start and a pause take one."""
    on = before.stage is Stage.TRAINING or (before.stage is Stage.STARTING and now > before.turn_began)
    # Each process has an identity of its own, which its last state keeps.
    began = before.process or (before.left_by if not before.stage.is_on else f"0 {now}") or "0 0.0"
    ended = "paused on request (the agent: its turn is over)"
    paused = State(Phase.PAUSED, ended=ended, at=now, uptime_at_start=float(began.split()[1]))
    seen = Observed(is_running=on, state=paused, is_starting=before.stage is Stage.STARTING)
    return follow(entry, before, seen, now, may_train=True)


def simulate(names: str, slots: int, secs: float, priorities: Mapping[str, int] = {}) -> dict[str, float]:
    """The seconds that each run trained, when each look comes a second after the one before."""
    room, trained = Room(slots, (), 100, SHARE), dict.fromkeys(names, 0.0)
    queue = {name: run(name, place=place, priority=priorities.get(name, 0)) for place, name in enumerate(names)}
    for now in map(float, range(1, int(secs))):
        for name, each in queue.items():
            queue[name] = replace(each, progress=look(each.entry, each.progress, now))
            trained[name] += queue[name].progress.stage is Stage.TRAINING
        for name, found in decide(list(queue.values()), room, now).items():
            progress = queue[name].progress
            if found.action in ("start", "pause"):
                progress = replace(progress, stage=Stage.STARTING if found.action == "start" else Stage.PAUSING)
            if found.action in ("start", "turn"):
                progress = replace(progress, turn_began=now, turns=progress.turns + 1)
            queue[name] = replace(queue[name], progress=progress)
        assert sum(each.is_on for each in queue.values()) <= slots
    return trained


@pytest.mark.parametrize(("names", "slots"), [("abc", 1), ("abc", 2), ("abcde", 2), ("abcde", 3), ("ab", 1)])
def test_turns_share_the_slots_evenly(names: str, slots: int) -> None:
    trained = simulate(names, slots, 40 * SHARE * len(names))
    mean = sum(trained.values()) / len(trained)
    assert all(abs(each - mean) < 0.05 * mean for each in trained.values()), trained
    assert sum(trained.values()) > 0.9 * slots * 40 * SHARE * len(names)


def test_turns_are_among_equal_priorities() -> None:
    trained = simulate("abc", 1, 3000, {"a": 1, "b": 1})
    assert trained["c"] == 0 and abs(trained["a"] - trained["b"]) < 2 * SHARE


def test_a_run_that_is_alone_keeps_its_place() -> None:
    turn = run("a", Stage.TRAINING, turn_began=NOW - 2 * SHARE, turns=1)
    assert actions([turn], replace(ROOM, share_secs=SHARE)) == {"a": "turn"}


def test_a_run_that_is_slow_to_start_keeps_its_place() -> None:
    starts = run("a", Stage.TRAINING, turn_began=NOW - 2 * SHARE, turns=0)
    assert actions([starts, run("b")], replace(ROOM, share_secs=SHARE)) == {}


def test_without_turns_no_run_gives_its_place() -> None:
    assert actions([run("a", Stage.TRAINING, turn_began=0.0), run("b")]) == {}
