"""The chief decides and the others follow: over real sockets, with sessions that need no TensorFlow."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.fake import FakeSession
from tests.unit.test_workers_gathering import SECS, Call
from tests.waiting import wait_for
from trainerd.errors import ConfigError, EntryError, JobError, PeerFailedError, PeerLostError, TrainerdError
from trainerd.loop.contract import Steps
from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import Outcome
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Answer, LastCheckpoint, Phase, State, WorkerState
from trainerd.workers.chief import Chief
from trainerd.workers.peer import Message, Peer
from trainerd.workers.step_watch import StepWatch
from trainerd.workers.training.lockstep import ChiefSession, WorkerCommands, explained, rows_of
from trainerd.workers.trouble import Trouble
from trainerd.workers.wire import Wire
from trainerd.workers.worker import Worker


class Collective(Exception):
    """What an operation of all workers fails with, if another worker is the cause."""


class Replicas:
    period = 1

    def agree_every(self, period: int) -> None:
        self.period = period

    def caused(self, error: BaseException) -> bool:
        return isinstance(error, Collective)


class Replicated(FakeSession):
    """A fake session of one of several workers."""

    def __init__(self, *, shares: bool = True, **more: Any) -> None:
        super().__init__(**more)
        self.shares_position = shares
        self.has_own_state = not shares
        self.own_states: dict[int, bytes] = {}
        self.assigned: list[tuple[str, float]] = []
        self.ended: list[bool] = []
        self.agreed: Mapping[str, float] = {}
        self.then: Callable[[], Mapping[str, float]] | None = None

    def run_until(self, limit: int) -> Steps:
        steps = super().run_until(limit)
        return Steps(steps.first, steps.names, steps.rows, steps.ended, self.then)

    def own_state(self) -> bytes:
        return f"at {self.step}".encode()

    def with_own_states(self, snapshot: Any, states: Mapping[int, bytes]) -> Any:
        self.own_states = dict(states)
        return snapshot

    def restore(self, prefix: Path) -> None:
        self.step = int(prefix.name.rpartition("-")[2])

    stopped = ""

    def stop(self, why: str) -> None:
        self.stopped = why

    def digests(self) -> Mapping[str, str]:
        return {"value": str(self.value)}

    def validation_logs(self) -> Mapping[str, float]:
        return {"val_loss": 7.0}

    def epoch_logs(self) -> Mapping[str, float]:
        return {"loss": float(self.step), "own": 1.0} if self.shares_position else {"loss": 0.0}

    def agree_on(self, logs: Mapping[str, float]) -> None:
        self.agreed = logs

    def assign(self, name: str, value: float) -> None:
        self.assigned.append((name, value))

    def end(self, *, finished: bool) -> None:
        self.ended.append(finished)


class Pair:
    """A chief and one other worker, in two threads."""

    def __init__(self, chiefs: Replicated, others: Replicated) -> None:
        one, other = socket.socketpair()
        self.asked: list[tuple[str, Message]] = []
        self.seen: list[WorkerState] = []
        self.aborted: list[str] = []
        self.was_asked, self.was_aborted = threading.Event(), threading.Event()
        self.to_worker = Peer(Wire(one, patience=5), "worker 1", heartbeat_secs=5)
        self.to_chief = Peer(Wire(other, patience=5), "the chief", heartbeat_secs=5)
        self.chief = Chief({1: self.to_worker}, asked=self._asked, seen=self._saw, trouble=Trouble(self._abort))
        self.shown = Reporter(State(), [])
        self.worker = Worker(
            self.to_chief, reporter=self.shown, trouble=Trouble(self._abort), received=lambda message: None
        )
        self.sessions = chiefs, others
        self.replicas: Any = Replicas()
        self.reported: list[tuple[int, float]] = []
        commands = WorkerCommands(
            others,
            self.worker,
            cast(Any, Replicas()),
            lambda message: Path("/there") / message["below"],
            lambda step, rate: self.reported.append((step, rate)),
        )
        self.thread = Call(lambda: self._serve(commands))

    def _serve(self, commands: WorkerCommands) -> Outcome | None:
        try:
            return self.worker.serve(commands.table())
        except TrainerdError as error:
            self.worker.failed(error)
            raise
        finally:
            self.to_chief.close()

    def leading(self) -> ChiefSession:
        return ChiefSession(self.sessions[0], self.chief, self.replicas, lambda prefix: {"below": prefix.name})

    def _asked(self, rank: int, kind: str, message: Message) -> None:
        self.asked.append((kind, message))
        self.was_asked.set()

    def _saw(self, workers: list[WorkerState]) -> None:
        self.seen = workers
        self.was_asked.set()

    def _abort(self, error: TrainerdError) -> None:
        self.aborted.append(str(error))
        self.was_aborted.set()

    def close(self) -> None:
        self.to_worker.close()
        self.to_chief.close()


@pytest.fixture
def pair() -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(chiefs: Replicated | None = None, others: Replicated | None = None) -> Pair:
        made.append(Pair(chiefs or Replicated(), others or Replicated()))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_worker_that_has_done_other_steps_ends_the_run() -> None:
    with pytest.raises(TrainerdError, match="the workers are at different steps: the chief did 2 steps from 5 on"):
        rows_of({"first": 4, "count": 2}, Steps(5, ("loss",), np.zeros((2, 1))))


def test_all_do_the_same_steps_and_metrics_are_means(pair: Callable[..., Pair]) -> None:
    two = pair(Replicated(loss=lambda step: 1.0 * step), Replicated(loss=lambda step: 3.0 * step))
    session = two.leading()
    steps = session.run_until(4)
    assert (steps.first, steps.last_step) == (1, 4) and two.sessions[1].step == 4
    assert np.array_equal(steps.rows[:, list(steps.names).index("loss")], [2.0, 4.0, 6.0, 8.0])
    assert two.reported and two.reported[0][0] == 4


def test_a_raised_flag_costs_the_others_no_command(pair: Callable[..., Pair]) -> None:
    two = pair()
    session, flag = two.leading(), Flag()
    session.bind(flag)
    flag.raise_for(Request.SAVE)
    assert session.run_until(4).last_step == 0 and two.sessions[1].step == 0
    flag.take()
    assert session.run_until(4).last_step == 4


def test_what_changes_the_state_is_done_by_all(pair: Callable[..., Pair]) -> None:
    chiefs, others = Replicated(shares=False), Replicated(shares=False)
    two = pair(chiefs, others)
    session = two.leading()
    session.run_until(3)
    session.snapshot()
    assert chiefs.own_states == {1: b"at 3"}
    session.restore(Path("/here/model.ckpt-1"))
    assert chiefs.step == others.step == 1
    session.assign("learning_rate", 0.5)
    assert chiefs.assigned == others.assigned == [("learning_rate", 0.5)]
    session.skip(2)
    assert chiefs.skipped == others.skipped != []
    session.end(finished=True)
    assert chiefs.ended == others.ended == [True]
    assert session.fingerprint()["cluster.workers"] == "2"
    assert session.fingerprint()["cluster.positions"] == "one for each worker"


def test_the_end_of_an_epoch_has_one_set_of_metrics(pair: Callable[..., Pair]) -> None:
    chiefs, others = Replicated(), Replicated(shares=False)
    called: list[str] = []

    def ends(session: Replicated) -> Callable[[], Mapping[str, float]]:
        def then() -> Mapping[str, float]:
            called.append("then")
            return session.agreed

        return then

    chiefs.then, others.then = ends(chiefs), ends(others)
    leading = pair(chiefs, others).leading()
    steps = leading.run_until(2)
    assert called == [] and steps.then is not None
    assert steps.then() == {"loss": 1.0, "val_loss": 7.0} == others.agreed and called == ["then", "then"]


def test_what_a_worker_is_asked_for_reaches_the_chief(pair: Callable[..., Pair]) -> None:
    two = pair()
    two.to_chief.try_send("save", content="id\n")
    assert two.was_asked.wait(SECS)
    [(kind, message)] = two.asked
    assert (kind, message["content"]) == ("save", "id\n")
    two.was_asked.clear()
    two.to_chief.try_send(
        "state", state={"seen_at": 1.0, "host": "b", "pid": 7, "step": 5, "steps_per_sec": None, "memory_bytes": 1}
    )
    assert two.was_asked.wait(SECS) and [(each.rank, each.host, each.step) for each in two.seen] == [(1, "b", 5)]
    assert "b, pid 7: step 5" in two.seen[0].line(two.seen[0].seen_at)


@pytest.mark.parametrize(
    "wrong",
    [{"seen_at": math.inf}, {"steps_per_sec": math.nan}, {"pid": "7"}, {"host": "x" * 300}, {"step": 1 << 63}],
    ids=str,
)
def test_what_state_json_cannot_hold_is_not_shown(pair: Callable[..., Pair], wrong: dict[str, Any]) -> None:
    two = pair()
    said = {"host": "b", "pid": 7, "step": 5, "steps_per_sec": None, "memory_bytes": 1, "seen_at": 1.0}
    two.to_chief.try_send("state", state=said | wrong)
    error = wait_for(lambda: two.chief.trouble.error, "the end of the run")
    assert "not understood" in str(error) and two.seen == []


def test_a_failure_of_a_worker_is_no_success_and_takes_little_room(pair: Callable[..., Pair]) -> None:
    two = pair()
    two.to_chief.try_send("failed", why="x" * 1_000_000, code=0)
    error = wait_for(lambda: two.chief.trouble.error, "the end of the run")
    assert error.exit_code == 70 and len(str(error)) < 20_000


def test_a_worker_shows_the_run_as_the_chief_does_and_ends_with_it(pair: Callable[..., Pair]) -> None:
    two = pair()
    last = LastCheckpoint(3, "/run/model.ckpt-3", "request", 0.1, 5, 1.0)
    answer = Answer(["id"], 3, None)
    two.chief.observe(
        State(Phase.TRAINING, step=4, metrics={"loss": float("nan")}, last_checkpoint=last, answers=[answer])
    )
    two.chief.end(Outcome(Phase.PAUSED, "paused on request"))
    two.chief.end(Outcome(Phase.FINISHED, "not told twice"))
    assert two.thread.end() == Outcome(Phase.PAUSED, "paused on request")
    shown = two.shown.state
    assert (shown.phase, shown.step, shown.last_checkpoint, shown.answer) == (Phase.TRAINING, 4, last, answer)
    assert np.isnan(shown.metrics["loss"]) and not two.aborted


def test_a_worker_that_is_gone_is_everybodys(pair: Callable[..., Pair]) -> None:
    two = pair()
    session = two.leading()
    two.to_chief.close()
    assert two.was_aborted.wait(SECS)
    with pytest.raises(PeerLostError, match="worker 1 is gone"):
        session.run_until(3)
    assert PeerLostError.exit_code == 76


def test_what_comes_after_the_end_of_this_process_aborts_nothing(pair: Callable[..., Pair]) -> None:
    """The others end for the same reason, and may do so first."""
    two = pair()
    assert two.chief.trouble.close() is None
    two.to_chief.close()
    two.to_worker.wait_until_gone(SECS)
    two.chief.observe(State(phase=Phase.FAILED))
    assert two.to_worker.is_gone and two.chief.trouble.error is None and "worker 1" not in str(two.aborted)


def test_a_chief_that_is_gone_is_too(pair: Callable[..., Pair]) -> None:
    two = pair()
    two.to_worker.close()
    with pytest.raises(PeerLostError, match="the chief is gone"):
        two.thread.end()
    assert two.aborted == ["the chief is gone: the connection was closed"]


def fails_at(step: int, error: BaseException) -> Callable[[int], None]:
    def on_step(now: int) -> None:
        if now == step:
            raise JobError("it failed", step=now, sound=False) from error

    return on_step


def test_an_error_of_a_worker_is_reported_with_its_rank(pair: Callable[..., Pair]) -> None:
    two = pair(others=Replicated(on_step=fails_at(1, ValueError("bad"))))
    with pytest.raises(PeerFailedError, match="worker 1: it failed") as caught:
        two.leading().run_until(3)
    assert caught.value.exit_code == JobError.exit_code
    with pytest.raises(JobError):
        two.thread.end()


def test_an_error_of_the_chief_ends_the_others_with_its_code(pair: Callable[..., Pair]) -> None:
    two = pair(Replicated(on_step=fails_at(1, ValueError("bad"))))
    with pytest.raises(JobError, match="it failed"):
        two.leading().run_until(3)
    two.chief.end(JobError("step 2 failed", step=1, sound=False))
    with pytest.raises(PeerFailedError, match="the run ends on all workers: step 2 failed") as caught:
        two.thread.end()
    assert caught.value.exit_code == 70


def test_a_collective_that_failed_is_explained_by_who_has_caused_it(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = pair(Replicated(on_step=fails_at(1, Collective("aborted"))))
    session = two.leading()
    two.to_chief.close()
    with pytest.raises(PeerLostError, match="worker 1 is gone"):
        session.run_until(3)
    monkeypatch.setattr("trainerd.workers.trouble.EXPLAIN_SECS", 0.01)
    alone = pair(Replicated(on_step=fails_at(1, Collective("timed out"))))
    with pytest.raises(PeerLostError, match="did not come together: timed out"):
        alone.leading().run_until(3)


@pytest.mark.parametrize("in_a_job", [True, False])
def test_a_collective_that_failed_while_the_job_is_built_is_no_fault_of_the_job(in_a_job: bool) -> None:
    def build() -> None:
        if not in_a_job:
            raise Collective("timed out")
        raise EntryError("the job could not be built") from Collective("timed out")

    with pytest.raises(PeerLostError, match="did not come together: timed out"):
        explained(build, lambda: None, cast(Any, Replicas()))


def test_workers_that_build_another_job_are_refused(pair: Callable[..., Pair]) -> None:
    two = pair(Replicated(fingerprint={"job.state": "3 tensors"}), Replicated(fingerprint={"job.state": "4 tensors"}))
    with pytest.raises(ConfigError, match=r"job.state: 3 tensors on the chief, 4 tensors on worker 1"):
        two.leading()


def test_workers_that_drift_apart_are_reported_where(pair: Callable[..., Pair]) -> None:
    others = Replicated()
    others.value = 1.0
    with pytest.raises(JobError, match=r"differ at step 1: value on worker 1 has another value than on the chief"):
        pair(others=others).leading().run_until(1)


def test_the_period_follows_the_rate(pair: Callable[..., Pair]) -> None:
    two = pair()
    now = iter(np.arange(0.0, 100.0, 1.0))
    session = ChiefSession(two.sessions[0], two.chief, two.replicas, lambda prefix: {}, timer=lambda: float(next(now)))
    session.run_until(1)
    assert two.replicas.period == 1, "the first call compiles"
    session.run_until(1001)
    assert two.replicas.period == 80, "a thousand steps took a second"
    session.run_until(1002)
    assert two.replicas.period == 1


def test_a_step_that_never_ends_is_noticed() -> None:
    now, step, stalled = [0.0], [5], list[TrainerdError]()
    watch = StepWatch(lambda: step[0], 300.0, stalled.append, timer=lambda: now[0])
    assert not watch.check(), "no step is run"
    with watch.running():
        for at, is_stuck in ((1.0, False), (200.0, False), (302.0, True)):
            now[0] = at
            assert watch.check() is is_stuck
        step[0] = 6
        assert not watch.check() and not stalled
    now[0] = 9000.0
    assert not watch.check(), "a boundary may take as long as it takes"
