"""The agent, with fake runs on a fake machine: what it starts and pauses, also when it is killed at any moment."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.unit.agent.conftest import FakeMachine, FakeRun, FakeStarter
from trainerd.agent import notes
from trainerd.agent.agent import Agent
from trainerd.agent.entry import QueueEntry
from trainerd.agent.plan import Room
from trainerd.agent.progress import Stage, StartResult
from trainerd.agent.queue_folder import QueueFolder
from trainerd.agent.when.conditions import WhenVerdict
from trainerd.agent.when.judge import WhenJudge
from trainerd.agent.when.machine import MachineProbes
from trainerd.config.schema import WhenConfig
from trainerd.rundir import registry
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State

ROOM = Room(slots=2, gpus=(), memory_bytes=1 << 40)


class KilledError(BaseException):
    """The agent is killed."""


class FakeJudge(WhenJudge):
    """Returns the verdict of a test."""

    def __init__(self, verdict: Callable[[], WhenVerdict]) -> None:
        super().__init__(MachineProbes({}))
        self._verdict = verdict
        self.asked: list[Collection[int] | None] = []  # of which GPUs

    def judge(
        self, when: WhenConfig, own_pids: Collection[int], *, is_training: bool, gpus: Collection[int] | None = None
    ) -> WhenVerdict:
        self.asked.append(gpus)
        return self._verdict()


class Subject:
    """An agent on a fake machine.

    Args:
      machine: the machine.
      room: what it has.
    """

    def __init__(self, machine: FakeMachine, room: Room = ROOM) -> None:
        self.machine, self.room = machine, room
        self.queue = QueueFolder(clock=machine.clock)
        self.verdict = WhenVerdict(True)
        self.renew()

    def renew(self) -> None:
        """Forget all that is not in files, as a new agent does."""
        machine = self.machine
        self.starter = FakeStarter(machine)
        clock = machine.clock
        self.judge = FakeJudge(lambda: self.verdict)
        self.agent = Agent(self.queue, lambda own: self.room, self.starter, self.judge, clock=clock, timer=clock)

    def add(self, *names: str, work: float = 10.0, **fields: object) -> None:
        """Add runs that take so many seconds."""
        for name in names:
            self.queue.add(name, self.machine.make(name, **fields))
            self.machine.runs[name].work = work

    def go(self, secs: float) -> None:
        """Look once a second for so long."""
        for _ in range(int(secs)):
            self.agent.check()
            self.machine.advance(1.0)
        self.agent.check()

    def stages(self) -> dict[str, Stage]:
        """What the agent has noted of each run."""
        return {name: each.progress.stage for name, each in notes.read().entries.items()}


@pytest.fixture
def subject(machine: FakeMachine) -> Subject:
    """An agent with two slots."""
    return Subject(machine)


def test_runs_are_trained_two_at_a_time_to_their_ends(subject: Subject) -> None:
    subject.add(*"abcde")
    subject.go(3)
    assert subject.machine.on() == ["a", "b"]
    subject.go(60)
    assert set(subject.stages().values()) == {Stage.DONE}
    assert all(run.starts == run.finished == 1 for run in subject.machine.runs.values())


def test_a_higher_priority_takes_a_place_and_gives_it_back(subject: Subject) -> None:
    subject.add("a", "b")
    subject.go(3)
    subject.add("high", priority=9)
    subject.go(3)
    assert subject.stages() == {"high": Stage.TRAINING, "a": Stage.TRAINING, "b": Stage.WAITING}
    found = notes.read().entries["b"]
    assert found.why == "waits for a slot: high and a first"
    subject.go(20)
    assert set(subject.stages().values()) == {Stage.DONE} and subject.machine.runs["b"].starts == 2


def test_the_reason_of_a_pause_is_in_its_file(subject: Subject) -> None:
    subject.add("a", "b")
    subject.go(3)
    subject.add("high", priority=9)
    subject.agent.check()
    assert subject.machine.runs["b"].rundir.pause.read_text() == "the agent: gives its place to high\n"


def test_a_pause_that_a_run_did_not_see_is_asked_for_again(subject: Subject) -> None:
    subject.add("a", work=1e9)
    subject.go(3)
    subject.queue.change("a", lambda entry: replace(entry, paused=True))
    subject.agent.check()
    rundir = subject.machine.runs["a"].rundir
    rundir.pause.unlink()  # as its start does, which voids what was asked of an earlier process
    for _ in range(12):
        subject.machine.clock.now += 1.0
        subject.agent.check()
    assert rundir.pause.exists()
    subject.go(3)
    assert subject.stages() == {"a": Stage.WAITING} and not subject.machine.on()


def test_gpus_are_given_and_noted(machine: FakeMachine) -> None:
    subject = Subject(machine, replace(ROOM, gpus=(0, 1)))
    subject.add("a", "b", gpus=1)
    subject.go(3)
    assert machine.given == [("a", (0,)), ("b", (1,))]
    assert [notes.read().entries[name].progress.gpus for name in "ab"] == [(0,), (1,)]


def test_when_pauses_and_starts(subject: Subject) -> None:
    subject.add("a", work=20.0)
    subject.go(3)
    subject.verdict = WhenVerdict(False, "waits until 20:00")
    subject.go(15)
    assert subject.stages() == {"a": Stage.WAITING} and not subject.machine.on()
    assert notes.read().entries["a"].why == "waits until 20:00"
    subject.verdict = WhenVerdict(True)
    subject.go(35)
    assert subject.stages() == {"a": Stage.DONE}


def test_a_run_that_cannot_start_says_why_and_blocks_nobody(subject: Subject) -> None:
    subject.machine.fails["a"] = StartResult(78, "trainerd: a.toml: unknown key")
    subject.add("a", "b", "c")
    subject.go(30)
    assert subject.stages() == {"a": Stage.FAILED, "b": Stage.DONE, "c": Stage.DONE}
    assert notes.read().entries["a"].why == "a.toml: unknown key"
    subject.queue.resume("a")
    subject.go(15)
    assert subject.stages()["a"] is Stage.DONE


def test_a_removed_entry_trains_on_without_the_agent(subject: Subject) -> None:
    subject.add("a", "b", "c")
    subject.go(3)
    subject.queue.remove("a")
    subject.go(3)
    assert sorted(subject.machine.on()) == ["a", "b", "c"] and set(subject.stages()) == {"b", "c"}


def test_another_run_with_a_name_of_before_is_another(subject: Subject) -> None:
    subject.add("a")
    subject.go(3)
    subject.queue.remove("a")
    subject.queue.add("a", subject.machine.make("other"))
    subject.renew()
    subject.agent.check()
    assert subject.stages() == {"a": Stage.STARTING}


def test_a_start_by_hand_while_it_waits_is_followed(subject: Subject) -> None:
    subject.add("a", "b", "c", work=20.0)
    subject.go(3)
    subject.machine.runs["c"].begin(subject.machine.clock())
    subject.go(12)
    assert subject.stages() == {"a": Stage.TRAINING, "b": Stage.WAITING, "c": Stage.TRAINING}
    assert notes.read().entries["c"].progress.is_by_hand
    subject.go(60)
    assert set(subject.stages().values()) == {Stage.DONE} and subject.machine.runs["c"].starts == 1


def test_an_edit_in_place_counts_within_ten_seconds(subject: Subject) -> None:
    subject.add("a", "b", "c", work=1e9)
    subject.go(3)
    file = subject.queue.path / "c.toml"
    with file.open("a") as edited:
        edited.write("priority = 1\n")
    subject.go(15)
    assert subject.stages() == {"c": Stage.TRAINING, "a": Stage.TRAINING, "b": Stage.WAITING}


def test_a_new_agent_takes_runs_over(subject: Subject) -> None:
    subject.add("a", "b", "c")
    subject.go(3)
    subject.renew()
    subject.go(3)
    assert subject.machine.on() == ["a", "b"] and subject.stages()["a"] is Stage.TRAINING
    assert not notes.read().entries["a"].progress.is_by_hand


@pytest.mark.parametrize("was_started", [False, True])
def test_an_agent_that_dies_in_a_start_starts_once(subject: Subject, was_started: bool) -> None:
    """Another entry must not take the slot of the run that a command may still start."""
    subject.room = replace(ROOM, slots=1, share_secs=5.0)
    subject.machine.start_secs = 3.0

    def dies(name: str, entry: QueueEntry, after: QueueEntry | None, gpus: tuple[int, ...], *, has_gpus: bool) -> None:
        if was_started:
            FakeStarter.start(subject.starter, name, entry, after, gpus, has_gpus=has_gpus)
        raise KilledError

    subject.add("a", "b")
    subject.starter.start = dies  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        subject.agent.check()
    assert subject.stages() == {"a": Stage.STARTING, "b": Stage.WAITING}
    subject.renew()
    subject.go(5)
    assert subject.machine.on() == (["a"] if was_started else [])
    subject.go(90)
    assert set(subject.stages().values()) == {Stage.DONE}


def test_a_full_disk_is_logged_once_and_starts_nothing(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not noted is not done: the next agent would not know of it."""

    def full(path: Path, content: bytes, **how: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    subject.add("a")
    with monkeypatch.context() as patched:
        patched.setattr(notes, "write_atomic", full)
        subject.go(5)
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1 and "No space left on device" in errors[0] and not subject.machine.on()
    subject.go(20)
    assert subject.stages() == {"a": Stage.DONE}


def test_an_agent_with_nothing_to_do_writes_nothing(subject: Subject) -> None:
    subject.add("a", "b", "c", work=1e9)
    subject.go(3)
    before = (notes.folder() / "agent.json").stat().st_ino
    subject.go(60)
    assert (notes.folder() / "agent.json").stat().st_ino == before


@pytest.mark.parametrize(("seed", "share_secs"), [(1, None), (2, 15.0)])
def test_no_run_is_lost_or_started_twice_whatever_is_killed(
    machine: FakeMachine, seed: int, share_secs: float | None
) -> None:
    """Forty runs over two slots, the agent killed at any moment, runs killed and failing."""
    random = Random(seed)
    subject = Subject(machine, replace(ROOM, share_secs=share_secs))
    subject.add(*(f"run-{number}" for number in range(40)), retries=1000)
    for run in machine.runs.values():
        run.work = random.uniform(1.0, 20.0)
    for _ in range(40_000):
        if all(stage is Stage.DONE for stage in subject.stages().values()) and subject.stages():
            break
        disturb(subject, random)
        machine.start_secs = random.uniform(0.0, 8.0)
        machine.advance(random.uniform(0.05, 8.0))
        assert len(machine.on()) <= 2, machine.on()
    assert subject.stages() == dict.fromkeys(machine.runs, Stage.DONE)
    assert all(run.finished == 1 for run in machine.runs.values())


def disturb(subject: Subject, random: Random) -> None:
    """Look once, and have something go wrong now and then."""
    machine, fate = subject.machine, random.random()
    on = [name for name, run in machine.runs.items() if run.process is not None]
    if fate < 0.05 and on:
        machine.runs[random.choice(on)].kill()
    elif fate < 0.07 and on:
        machine.runs[random.choice(on)].end(Phase.FAILED, machine.clock(), error="boom")
    elif fate < 0.1:
        machine.fails[random.choice(list(machine.runs))] = StartResult(70, "boom")
    elif fate < 0.3:
        subject.renew()
    elif fate < 0.4:
        die_in_a_start(subject, random)
    subject.agent.check()


def die_in_a_start(subject: Subject, random: Random) -> None:
    """Kill the agent at its next start, before that or after it."""

    def dies(name: str, entry: QueueEntry, after: QueueEntry | None, gpus: tuple[int, ...], *, has_gpus: bool) -> None:
        if random.random() < 0.5:
            FakeStarter.start(subject.starter, name, entry, after, gpus, has_gpus=has_gpus)
        raise KilledError

    subject.starter.start = dies  # type: ignore[method-assign]
    try:
        subject.agent.check()
    except KilledError:
        subject.renew()
    else:
        del subject.starter.start


def test_a_run_that_cannot_be_read_keeps_its_place_and_stops_nobody(subject: Subject) -> None:
    subject.add("a", "b", work=1e9)
    subject.go(3)
    lock = subject.machine.runs["a"].rundir.lock
    content = lock.read_text()
    lock.unlink()
    lock.symlink_to("/nowhere")
    subject.queue.change("b", lambda entry: replace(entry, paused=True))
    subject.go(15)
    assert subject.stages() == {"a": Stage.TRAINING, "b": Stage.WAITING}
    lock.unlink()
    lock.write_text(content)
    subject.go(12)
    found = notes.read().entries["a"].progress
    assert found.stage is Stage.TRAINING and not found.is_by_hand and subject.machine.runs["a"].starts == 1


def test_a_run_whose_state_a_power_cut_has_emptied_is_started_again(subject: Subject) -> None:
    subject.add("a", "b", work=1e9)
    subject.go(3)
    run = subject.machine.runs["a"]
    run.kill()
    run.rundir.state.write_bytes(b"")
    subject.renew()
    subject.go(60)
    assert subject.machine.on() and subject.stages()["a"] in (Stage.WAITING, Stage.TRAINING)


def test_a_run_with_when_that_a_person_removes_stays_out_of_the_queue(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "trainerd.toml"
    config.write_text('entry = "job:job"\nlogdir = "run"\n')
    rundir = RunDirectory(tmp_path / "run")
    run = FakeRun(rundir, work=1e9)
    run.begin(subject.machine.clock())
    options = registry.StartOptions(("params.units=64", 'when.hours="20:00-08:00"'), max_steps=9000)
    registry.remember(rundir, config, options=options)
    subject.go(11)
    [(name, entry)] = subject.queue.read().entries.items()
    assert (name, entry.set, entry.max_steps) == ("run", options.set, 9000), "it joins the queue as it was started"
    subject.queue.remove("run")
    subject.go(30)
    assert not subject.queue.read().entries and run.process is not None
    run.kill()
    subject.go(11)
    run.begin(subject.machine.clock())
    subject.go(11)
    assert list(subject.queue.read().entries) == ["run"], "another start"
    run.kill()


def test_a_run_whose_directory_is_removed_does_not_start_again_by_itself(subject: Subject) -> None:
    """Neither one that trains nor one that waits: at step 0 it would be another run."""
    subject.room = replace(ROOM, slots=1)
    subject.add("waits", work=1e9)
    subject.go(3)
    subject.add("trains", work=1e9, priority=1)
    subject.go(3)
    for name, run in subject.machine.runs.items():
        shutil.rmtree(run.rundir.path)
        if name == "trains":
            run.kill()
    subject.go(60)
    assert subject.stages() == {"trains": Stage.FAILED, "waits": Stage.FAILED} and not subject.machine.on()
    assert "was removed" in notes.read().entries["trains"].why
    subject.queue.resume("waits")
    subject.go(3)
    assert subject.stages()["waits"] is Stage.TRAINING and subject.machine.runs["waits"].starts == 2


def test_a_run_whose_disk_comes_late_waits_for_it(subject: Subject) -> None:
    subject.add("a", work=1e9)
    subject.go(3)
    run = subject.machine.runs["a"]
    disk = run.rundir.path.parent
    late = disk.with_name("late")
    run.kill()
    disk.rename(late)
    subject.go(60)
    assert subject.stages()["a"] is Stage.WAITING and not subject.machine.on()
    assert notes.read().entries["a"].why == f"neither {run.rundir.path} nor the folder that held it exists"
    late.rename(disk)
    subject.go(60)
    assert subject.stages()["a"] is Stage.TRAINING and subject.machine.runs["a"].starts == 2


def test_a_run_without_gpus_is_judged_by_none_of_them(machine: FakeMachine) -> None:
    """While it trains as while it waits: else it would start and pause again and again."""
    subject = Subject(machine, replace(ROOM, gpus=(0, 1)))
    subject.add("a", gpus=0, work=1e9)
    subject.go(3)
    assert subject.stages()["a"] is Stage.TRAINING and set(subject.judge.asked) == {()}


def test_a_run_whose_config_cannot_be_read_waits(subject: Subject) -> None:
    """Nobody knows its hours. One that trains is not paused for that."""
    subject.add("trains", "waits", work=1e9)
    subject.queue.change("waits", lambda entry: replace(entry, paused=True))
    subject.go(3)
    config = Path(subject.queue.read().entries["waits"].config)
    good = config.read_text()
    config.write_text("[when\n")
    subject.renew()
    subject.queue.resume("waits")
    subject.go(15)
    assert subject.machine.on() == ["trains"]
    assert str(config) in notes.read().entries["waits"].why
    config.write_text(good)
    subject.go(12)
    assert subject.machine.on() == ["trains", "waits"]


def test_a_run_of_another_machine_is_waited_for(subject: Subject) -> None:
    subject.add("a", "b", "c", work=1e9)
    path = subject.machine.runs["a"].rundir
    path.create()
    State(Phase.TRAINING, at=time.time(), pid=1, host="elsewhere").write(path.state)
    subject.go(3)
    assert subject.machine.on() == ["b", "c"]
    assert notes.read().entries["a"].why == "another machine trains it: elsewhere"
