"""What the watcher does before the machine stops: it asks each run once, waits, and reports what became of it."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.conftest import FakeTime
from tests.unit.watch.conftest import MakeRun
from tests.waiting import wait_for
from trainerd.errors import StorageError
from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.request_files import who_asks_for_pause
from trainerd.rundir.state import Answer, Phase, State
from trainerd.system import safe_paths
from trainerd.watch.ask import Action
from trainerd.watch.delivery.notice import Notice
from trainerd.watch.interruptions.interruption import (
    AbsentError,
    InterruptionKind,
    InterruptionSource,
    MachineInterruption,
    SourceError,
)
from trainerd.watch.interruptions.listener import Listener, listening, sources
from trainerd.watch.interruptions.responder import Responder, RunOutcome
from trainerd.watch.run_reader import Runs
from trainerd.watch.settings import InterruptionsConfig, Response

SLEEP = MachineInterruption("sleep", "sleep 1", "the machine goes to sleep", 4.5)
SPOT = MachineInterruption("spot", "aws 1", "AWS will terminate the machine at 12:02", 120.0)


class World:
    """Two runs that this process trains, and a responder whose time is the test's."""

    def __init__(self, runs: Runs, clock: FakeTime, rundirs: list[RunDirectory]) -> None:
        self.clock, self.rundirs = clock, rundirs
        self.notices: list[Notice] = []
        self.responder = Responder(runs.read, self.notices.append, "here", clock=clock, timer=clock, sleep=clock.sleep)

    def respond(self, interruption: MachineInterruption, action: Action, *on_sleep: Callable[[], None]) -> None:
        """Respond; this happens meanwhile, at each look."""
        self.clock.on_sleep = list(on_sleep)
        self.outcomes = self.responder.respond(interruption, action)


def save(rundir: RunDirectory, step: int = 9, error: str | None = None) -> None:
    """Do what a trainer does at a save."""
    ids = rundir.save.read_text().split()
    rundir.save.unlink()
    answer = Answer(ids, None if error else step, error)
    State(Phase.TRAINING, pid=os.getpid(), step=step, answers=[answer]).write(rundir.state)


def pause(rundir: RunDirectory, step: int = 9, phase: Phase = Phase.PAUSED, error: str | None = None) -> None:
    """Do what a trainer does at a pause, but for its end."""
    rundir.pause.unlink()
    State(phase, pid=os.getpid(), step=step, error=error).write(rundir.state)


@pytest.fixture
def world(runs: Runs, make_run: MakeRun, clock: FakeTime) -> Iterator[World]:
    make_run("over", Phase.PAUSED, step=3)
    rundirs = [make_run(name, Phase.TRAINING, step=7, pid=os.getpid()) for name in ("cifar", "digits")]
    with lock.acquire(rundirs[0]) as one, lock.acquire(rundirs[1]) as two:
        one.name_holder(os.getpid())
        two.name_holder(os.getpid())
        yield World(runs, clock, rundirs)


def test_all_runs_save_and_one_notice_says_so(world: World) -> None:
    cifar, digits = world.rundirs
    world.respond(SLEEP, "save", lambda: save(cifar, 8), lambda: None, lambda: save(digits, 9))
    assert world.outcomes == [RunOutcome("cifar", 8), RunOutcome("digits", 9)]
    [notice] = world.notices
    assert (notice.kind, notice.key, notice.run) == ("sleep", "sleep 1", "")
    assert notice.title == "here: the machine goes to sleep: 2 of 2 runs saved"
    assert notice.body == "cifar: saved at step 8\ndigits: saved at step 9"
    assert not cifar.save.exists() and not cifar.pause.exists()


def test_all_runs_pause(world: World) -> None:
    cifar, digits = world.rundirs
    reasons = list[str | None]()

    def pause_both() -> None:
        reasons.extend(who_asks_for_pause(rundir) for rundir in (cifar, digits))
        pause(cifar)
        pause(digits, phase=Phase.FINISHED)

    world.respond(SPOT, "pause", pause_both)
    assert reasons == ["the watcher: AWS will terminate the machine at 12:02"] * 2
    assert world.outcomes == [RunOutcome("cifar", 9), RunOutcome("digits", 9)]
    assert world.notices[0].title.endswith(": 2 of 2 runs paused") and world.notices[0].kind == "spot"
    assert not (world.rundirs[0].path.parent / "over" / "pause").exists()


def test_a_run_that_does_not_answer_in_time_is_a_failed_save(world: World) -> None:
    cifar, digits = world.rundirs
    start = world.clock.now
    State(Phase.EVALUATING, pid=os.getpid(), step=7).write(digits.state)
    world.respond(SLEEP, "save", lambda: save(cifar))
    assert 4.5 <= world.clock.now - start < 4.6
    late = "no answer within 4.5 s; it is evaluating at step 7"
    assert world.outcomes == [RunOutcome("cifar", 9), RunOutcome("digits", None, late)]
    [notice] = world.notices
    assert (notice.kind, notice.title) == ("save failed", "here: the machine goes to sleep: 1 of 2 runs saved")
    assert notice.body.endswith(f"digits: not saved: {late}")


def test_a_save_that_fails_is_reported_with_its_reason(world: World) -> None:
    cifar, digits = world.rundirs
    world.respond(SLEEP, "save", lambda: save(cifar, error="the disk is full"), lambda: save(digits))
    assert world.outcomes[0] == RunOutcome("cifar", None, "the disk is full")
    world.respond(SPOT, "pause", lambda: pause(cifar, phase=Phase.FAILED, error="the disk is full\x1b[2J"))
    assert (
        world.notices[1].body.startswith("cifar: not paused: the disk is full") and "\x1b" not in world.notices[1].body
    )


def test_a_run_that_cannot_be_asked_delays_no_other(world: World) -> None:
    cifar, digits = world.rundirs
    cifar.save.mkdir()
    world.respond(SLEEP, "save", lambda: save(digits))
    assert "cannot write" in world.outcomes[0].error and world.outcomes[1] == RunOutcome("digits", 9)


def test_a_run_that_cannot_be_read_meanwhile_delays_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cifar, digits = world.rundirs

    def lstat(path: Path) -> os.stat_result | None:
        if path.is_relative_to(cifar.path):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return real(path)

    def unmount() -> None:
        monkeypatch.setattr(safe_paths, "lstat", lstat)
        monkeypatch.setattr(Path, "exists", lstat)

    real = safe_paths.lstat
    world.respond(SLEEP, "save", unmount, lambda: save(digits))
    assert [outcome.step for outcome in world.outcomes] == [None, 9]
    assert world.outcomes[0].error == "no answer within 4.5 s; it is training at step 7"


def test_the_reason_is_reported_if_a_state_cannot_be_read(world: World) -> None:
    cifar, digits = world.rundirs

    def damage() -> None:
        cifar.state.unlink()
        cifar.state.mkdir()

    world.respond(SLEEP, "save", damage, lambda: save(digits))
    assert world.outcomes[0].error.startswith(f"no answer within 4.5 s; cannot read {cifar.state}: ")
    assert world.outcomes[1].step == 9


@pytest.mark.parametrize(("phase", "step"), [(Phase.PAUSED, 9), (Phase.TRAINING, None)])
def test_a_run_that_ends_in_place_of_a_save_is_saved_if_it_paused(
    runs: Runs, make_run: MakeRun, clock: FakeTime, phase: Phase, step: int | None
) -> None:
    rundir = make_run("digits", Phase.TRAINING, step=7)
    process = subprocess.Popen(["sleep", "1000"])
    responder = Responder(runs.read, lambda notice: None, clock=clock, timer=clock, sleep=clock.sleep)

    def end() -> None:
        State(phase, step=9).write(rundir.state)
        process.kill()
        process.wait()

    with lock.acquire(rundir) as held:
        held.name_holder(process.pid)
        clock.on_sleep = [end]
        [outcome] = responder.respond(SLEEP, "save")
    assert outcome.step == step and ("ended before it saved" in outcome.error) == (step is None)


def test_a_run_that_pauses_already_is_not_asked_again(world: World) -> None:
    cifar, digits = world.rundirs
    world.respond(SLEEP, "pause", lambda: cifar.pause.unlink())  # taken, and not done in time
    State(Phase.PAUSING, pid=os.getpid(), step=7).write(cifar.state)

    def look_and_pause() -> None:
        assert not cifar.pause.exists()
        State(Phase.PAUSED, pid=os.getpid(), step=8).write(cifar.state)
        pause(digits)

    world.respond(SPOT, "pause", look_and_pause)
    assert world.outcomes == [RunOutcome("cifar", 8), RunOutcome("digits", 9)]


def test_where_nothing_trains_nobody_is_told(runs: Runs, make_run: MakeRun, clock: FakeTime) -> None:
    make_run("over")
    notices: list[Notice] = []
    responder = Responder(runs.read, notices.append, clock=clock, timer=clock, sleep=clock.sleep)
    assert responder.respond(SLEEP, "save") == [] and notices == []


def test_a_notice_that_cannot_be_noted_is_logged(
    runs: Runs, trained: RunDirectory, clock: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    def report(notice: Notice) -> None:
        raise StorageError("the disk is full")

    responder = Responder(runs.read, report, clock=clock, timer=clock, sleep=clock.sleep)
    clock.on_sleep = [lambda: save(trained)]
    assert responder.respond(SLEEP, "save") == [RunOutcome("trained", 9)]
    assert "the disk is full" in caplog.text


# ---------------------------------------------------------------------- listening


class FakeSource:
    """Announces what a test puts into it: an interruption, an error, or nothing."""

    name = "a fake"
    poll_secs = 5.0

    def __init__(self, *found: MachineInterruption | SourceError | None) -> None:
        self.found = list(found)
        self.finished = 0

    def poll(self) -> MachineInterruption | None:
        found = self.found.pop(0) if self.found else None
        if isinstance(found, SourceError):
            raise found
        return found

    def finish(self) -> None:
        self.finished += 1


ACTIONS: dict[InterruptionKind, Response] = {"sleep": "save", "spot": "off"}


def test_a_source_is_released_when_the_runs_have_answered() -> None:
    source, served = FakeSource(None, SLEEP, SPOT), list[tuple[MachineInterruption, Action, int]]()
    listener = Listener(source, ACTIONS, lambda found, action: served.append((found, action, source.finished)))
    assert listener.listen() == 5.0 and not served
    listener.listen()
    assert served == [(SLEEP, "save", 0)] and source.finished == 1
    listener.listen()  # its kind is off
    assert len(served) == 1 and source.finished == 2


@pytest.mark.parametrize("error", [StorageError("no runs can be read"), OSError("no runs can be read")])
def test_a_source_is_released_though_the_response_fails(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    def respond(found: MachineInterruption, action: Action) -> None:
        raise error

    source = FakeSource(SLEEP)
    Listener(source, ACTIONS, respond).listen()
    assert source.finished == 1 and "the machine goes to sleep, and the runs cannot be asked: no runs" in caplog.text


def test_the_trouble_of_a_source_is_logged_once_and_the_source_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gone = SourceError("it does not answer")
    listener = Listener(FakeSource(gone, gone, None, AbsentError("there is none")), ACTIONS, lambda found, action: None)
    assert [listener.listen() for _ in range(4)] == [5.0, 10.0, 5.0, 5.0]
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "a fake: it does not answer"),
        ("INFO", "a fake: it answers again"),
        ("INFO", "a fake: there is none"),
    ]


def test_each_source_is_listened_to_on_a_thread_of_its_own() -> None:
    hangs, is_over = threading.Event(), threading.Event()

    class Hanging(FakeSource):
        def poll(self) -> None:
            hangs.set()
            is_over.wait(60.0)

    served = list[MachineInterruption]()
    found: list[InterruptionSource] = [Hanging(), FakeSource(SLEEP)]
    with listening(InterruptionsConfig(), lambda found, action: served.append(found), found):
        wait_for(lambda: hangs.is_set() and served == [SLEEP], "both")
    is_over.set()


def test_the_settings_say_which_sources_there_are() -> None:
    assert [source.name for source in sources(InterruptionsConfig())] == ["logind"]
    off = InterruptionsConfig(sleep="off", shutdown="off")
    assert sources(off) == [] and off.is_off
    spot = InterruptionsConfig(sleep="off", shutdown="off", cloud="aws", ups_name="ups@localhost")
    assert [source.name for source in sources(spot)] == ["the metadata service of AWS", "the UPS ups@localhost"]
    assert not spot.is_off
    never = InterruptionsConfig(sleep="off", shutdown="off", cloud="aws", spot="off", ups_name="ups", ups="off")
    assert sources(never) == [] and never.is_off
