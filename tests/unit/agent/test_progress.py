"""What becomes of an entry of the queue: every way in which its process begins and ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainerd.agent.entry import QueueEntry
from trainerd.agent.notes import AgentNotes, EntryNotes
from trainerd.agent.progress import EntryProgress, Observed, Stage, StartResult, follow
from trainerd.loop.outcome import PAUSED, PAUSED_EARLY, Outcome
from trainerd.rundir.state import Phase, State
from trainerd.system.gpus import DeviceState

ENTRY = QueueEntry(config="a.toml", logdir="/a", folder="/")
NOW = 1000.0
TRAINS = EntryProgress(Stage.TRAINING, turn_began=NOW - 100, turns=1, gpus=(0,))
STARTS = EntryProgress(Stage.STARTING, turn_began=NOW - 1, gpus=(0,))
PAUSES = replace(TRAINS, stage=Stage.PAUSING, why="gives its place to b")


def state(phase: Phase, at: float = NOW - 0.5, **fields: object) -> State:
    return State(phase, at=at, **fields)  # type: ignore[arg-type]


def after(
    before: EntryProgress,
    left: State | None = None,
    entry: QueueEntry = ENTRY,
    *,
    running: bool = False,
    starting: bool = False,
    started: StartResult | None = None,
    now: float = NOW,
    may_train: bool = True,
) -> EntryProgress:
    """The progress after one look."""
    return follow(entry, before, Observed(running, left, starting, started), now, may_train=may_train)


# ---------------------------------------------------------------------- begins


def test_a_start_is_waited_for() -> None:
    assert after(STARTS, starting=True) == STARTS
    ended = after(STARTS, starting=True, started=StartResult(64, "no such key"))  # just now
    assert ended.stage is Stage.FAILED and ended.why == "no such key"
    begun = after(STARTS, state(Phase.TRAINING), running=True, starting=True)
    assert begun.stage is Stage.TRAINING and begun.turn_began == NOW and begun.turns == 1 and not begun.is_by_hand


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.STARTING, Phase.RESTORING])
def test_a_turn_begins_with_the_first_step(phase: Phase) -> None:
    """Otherwise a run whose start takes longer than a turn never trains."""
    started = after(STARTS, state(phase), running=True, now=NOW)
    assert started.stage is Stage.TRAINING and started.turns == 0
    begun = after(started, state(Phase.TRAINING), running=True, now=NOW + 40)
    assert (begun.turn_began, begun.turns) == (NOW + 40, 1)
    assert after(begun, state(Phase.EVALUATING), running=True, now=NOW + 50).turn_began == NOW + 40


def test_the_state_of_an_earlier_process_begins_no_turn() -> None:
    left = state(Phase.PAUSED)
    starts = replace(STARTS, left_by=f"{left.pid} {left.uptime_at_start}")
    started = after(starts, left, running=True)
    assert started.turns == 0 and after(started, left, running=True).turns == 0


@pytest.mark.parametrize("stage", [Stage.WAITING, Stage.PAUSED, Stage.DONE, Stage.FAILED])
def test_what_the_agent_did_not_start_is_by_hand(stage: Stage) -> None:
    begun = after(EntryProgress(stage, why="boom"), running=True)
    assert begun.stage is Stage.TRAINING and begun.is_by_hand and not begun.why and not begun.overrides_when


def test_a_run_by_hand_outside_its_hours_trains_until_the_next_hours_end() -> None:
    begun = after(EntryProgress(), running=True, may_train=False)
    assert begun.overrides_when
    assert after(begun, running=True, may_train=False).overrides_when
    in_hours = after(begun, running=True, may_train=True)
    assert not in_hours.overrides_when and not after(in_hours, running=True, may_train=False).overrides_when


def test_the_most_memory_is_remembered() -> None:
    seen = after(TRAINS, state(Phase.TRAINING, memory_bytes=1000), running=True)
    assert seen.memory_bytes == 1000
    assert after(seen, state(Phase.TRAINING, memory_bytes=1050), running=True).memory_bytes == 1000
    assert after(seen, state(Phase.TRAINING, memory_bytes=10), running=True).memory_bytes == 1000
    assert after(seen, state(Phase.PAUSED, memory_bytes=2000)).memory_bytes == 2000
    devices = [DeviceState("GPU:0", needed_bytes=7), DeviceState("GPU:1", needed_bytes=9), DeviceState("GPU:2")]
    assert after(TRAINS, state(Phase.TRAINING, devices=devices), running=True).gpu_memory_bytes == 9


# ---------------------------------------------------------------------- ends


def test_a_finished_run_is_done() -> None:
    done = after(TRAINS, state(Phase.FINISHED, ended="finished at 9"))
    assert done.stage is Stage.DONE and done.why == "finished at 9" and done.gpus == () and done.turn_ended == NOW


def test_a_start_that_finds_the_run_finished_is_done() -> None:
    old = state(Phase.FINISHED, at=1.0)
    assert after(STARTS, old, started=StartResult(0, "")).stage is Stage.DONE


def test_the_end_of_an_earlier_process_says_nothing_of_this_one() -> None:
    for phase in (Phase.FINISHED, Phase.FAILED, Phase.PAUSED):
        old = state(phase, error="old", pid=7, uptime_at_start=1.5)
        killed = after(replace(TRAINS, left_by="7 1.5"), old)
        assert killed.why == "its process was killed" and killed.stage is Stage.WAITING


def test_what_the_agent_paused_waits_for_its_turn() -> None:
    for ended in ("paused on request (the agent: gives its place to b)", "paused on request (SIGTERM)"):
        paused = after(PAUSES, state(Phase.PAUSED, ended=ended))
        assert paused.stage is Stage.WAITING and paused.again_at == 0.0 and paused.gpus == ()


@pytest.mark.parametrize("by", ["the file `pause`", "SIGINT", "Ctrl-C"])
def test_what_a_person_paused_stays_paused(by: str) -> None:
    paused = after(TRAINS, state(Phase.PAUSED, ended=f"paused on request ({by})"))
    assert paused.stage is Stage.PAUSED and by in paused.why
    assert after(paused).stage is Stage.PAUSED


@pytest.mark.parametrize(("by", "secs"), [("SIGTERM", 15.0), ("the watcher: the machine shuts down", 600.0)])
def test_what_a_shutdown_paused_does_not_start_again_before_it(by: str, secs: float) -> None:
    paused = after(TRAINS, state(Phase.PAUSED, ended=f"paused on request ({by})"))
    assert paused.stage is Stage.WAITING and paused.again_at == NOW + secs
    notes = AgentNotes(create_time=NOW, uptime_at_start=500.0, entries={"a": EntryNotes(paused, "/a")})
    assert notes.since_boot(NOW + 900, 1400.5) == notes
    assert notes.since_boot(NOW + 900, 20.0).entries["a"].progress == replace(paused, again_at=0.0)


def test_a_failed_run_has_failed() -> None:
    failed = after(TRAINS, state(Phase.FAILED, error="ValueError: boom\n  at line 3"))
    assert failed.stage is Stage.FAILED and failed.why == "ValueError: boom" and failed.failures == 1


def test_retries_wait_longer_each_time() -> None:
    entry, progress, waits = replace(ENTRY, retries=8), TRAINS, []
    for _ in range(9):
        progress = after(replace(progress, stage=Stage.TRAINING), state(Phase.FAILED, error="boom"), entry)
        waits.append(progress.again_at - NOW)
    assert waits == [15, 30, 60, 120, 240, 480, 600, 600, 600]
    assert progress.stage is Stage.FAILED and progress.failures == 9


def test_a_run_that_trains_well_has_its_retries_again() -> None:
    entry = replace(ENTRY, retries=1)
    failed = after(TRAINS, state(Phase.FAILED, error="boom"), entry)
    paused = after(replace(failed, stage=Stage.TRAINING), state(Phase.PAUSED, ended="paused on request (SIGTERM)"))
    assert failed.stage is Stage.WAITING and paused.failures == 0


@pytest.mark.parametrize("retries", [0, 2])
def test_a_start_that_fails_is_a_failure(retries: int) -> None:
    failed = after(
        STARTS,
        started=StartResult(78, "a warning\ntrainerd: no.toml: unknown key\nmore"),
        entry=replace(ENTRY, retries=retries),
    )
    assert failed.why == "no.toml: unknown key" and failed.failures == 1
    assert failed.stage is (Stage.WAITING if retries else Stage.FAILED)


def test_a_killed_run_is_started_again_soon() -> None:
    for left in (state(Phase.TRAINING), state(Phase.STARTING), None):
        killed = after(TRAINS, left)
        assert killed.stage is Stage.WAITING and killed.again_at == NOW + 15 and not killed.failures
        assert killed.why == "its process was killed"


def test_a_start_that_finds_another_process_is_tried_again() -> None:
    again = after(STARTS, started=StartResult(75, "process 7 trains in /a."))
    assert again.stage is Stage.WAITING and again.again_at == NOW + 15 and not again.failures
    assert again.why == "process 7 trains in /a."


# ---------------------------------------------------------------------- starts over, and is taken over


@pytest.mark.parametrize("stage", [Stage.PAUSED, Stage.DONE, Stage.FAILED, Stage.WAITING])
def test_an_entry_that_is_resumed_starts_over(stage: Stage) -> None:
    before = EntryProgress(stage, since=1.0, failures=3, again_at=NOW + 99, memory_bytes=7, turn_ended=5.0)
    assert after(before, entry=replace(ENTRY, since=2.0)) == EntryProgress(since=2.0, memory_bytes=7, turn_ended=5.0)
    assert after(before, entry=replace(ENTRY, since=1.0)) == before


@pytest.mark.parametrize(
    "before", [TRAINS, PAUSES, replace(TRAINS, is_by_hand=True)], ids=["trains", "pauses", "by hand"]
)
def test_an_entry_that_is_resumed_while_it_trains_keeps_what_is_known_of_its_process(before: EntryProgress) -> None:
    kept = after(before, running=True, entry=replace(ENTRY, since=2.0))
    assert kept.gpus == before.gpus and kept.is_by_hand == before.is_by_hand and kept.turn_began == before.turn_began
    starts = after(STARTS, starting=True, entry=replace(ENTRY, since=2.0))
    assert starts.stage is Stage.STARTING


def test_a_start_of_an_agent_that_is_gone_is_waited_for() -> None:
    """The command of a start outlives its agent: the next agent does not start the run again."""
    assert after(STARTS) == STARTS
    assert after(STARTS, running=True).stage is Stage.TRAINING and not after(STARTS, running=True).is_by_hand
    late = after(STARTS, now=NOW + 30)
    assert late.stage is Stage.WAITING and late.again_at == 0.0 and not late.why
    assert after(STARTS, now=NOW - 3600).stage is Stage.WAITING  # the clock was set


def test_a_run_that_ended_while_no_agent_ran_is_seen() -> None:
    assert after(STARTS, state(Phase.FINISHED)).stage is Stage.DONE
    assert after(STARTS, state(Phase.FAILED, error="boom")).stage is Stage.FAILED
    assert after(TRAINS, running=True) == TRAINS


@pytest.mark.parametrize("outcome", [PAUSED, PAUSED_EARLY])
def test_what_a_person_paused_is_known_by_what_the_run_says_also_before_its_first_step(outcome: Outcome) -> None:
    for stage in (Stage.STARTING, Stage.TRAINING):
        said = state(Phase.PAUSED, ended=outcome.reason("the file `pause`"))
        assert after(replace(TRAINS, stage=stage), said).stage is Stage.PAUSED
        said = state(Phase.PAUSED, ended=outcome.reason("the agent: gives its place to b"))
        assert after(replace(TRAINS, stage=stage), said).stage is Stage.WAITING


def test_each_kill_is_waited_for_longer_and_none_counts_as_a_failure() -> None:
    progress, waits = TRAINS, []
    for _ in range(8):
        progress = after(replace(progress, stage=Stage.TRAINING), None)
        waits.append(progress.again_at - NOW)
    assert waits == [15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
    assert progress.stage is Stage.WAITING and progress.failures == 0


def test_what_systemd_starts_again_is_not_by_hand() -> None:
    killed = after(TRAINS, None)
    again = after(killed, state(Phase.TRAINING, pid=9), running=True, may_train=False)
    assert again.stage is Stage.TRAINING and not again.is_by_hand and not again.overrides_when


def test_a_process_that_a_person_started_while_no_agent_ran_is_by_hand() -> None:
    trains = after(TRAINS, state(Phase.TRAINING, pid=5), running=True)
    assert trains.process == "5 0.0" and not trains.is_by_hand
    other = after(trains, state(Phase.TRAINING, pid=6), running=True, may_train=False)
    assert other.is_by_hand and other.overrides_when and other.process == "6 0.0"


def test_a_clock_that_was_set_back_hides_neither_an_end_nor_a_resume() -> None:
    left = state(Phase.PAUSED, at=1.0, ended="paused on request (the file `pause`)")
    assert after(TRAINS, left).stage is Stage.PAUSED
    failed = EntryProgress(Stage.FAILED, since=2000.0)
    assert after(failed, entry=replace(ENTRY, since=1000.0)).stage is Stage.WAITING
