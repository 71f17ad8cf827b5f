"""Workers find each other: real sockets, in threads of this process."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_for
from trainerd.errors import ConfigError, PeerLostError
from trainerd.history.rollback import RollbackRequest, RollbackTarget, read_request
from trainerd.loop.flag import Flag, Request
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.workers import requests, token
from trainerd.workers.gathering import PausedWhileGathering, Terms, gather_as_chief, gather_as_worker
from trainerd.workers.peer import Peer
from trainerd.workers.plan import ClusterPlan, WorkerAddress
from trainerd.workers.wire import MOST_SILENT, Gone, Wire

SECS = 20.0


def free_port() -> int:
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                other.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


class Call(threading.Thread):
    """Calls a function on a thread. Its result, or what it raised, is there when it has ended."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.error: BaseException | None = None
        self.found: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.found = self._function()
        except BaseException as error:
            self.error = error

    def end(self) -> Any:
        self.join(SECS)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.found


@pytest.fixture
def plan() -> ClusterPlan:
    return ClusterPlan(
        (
            WorkerAddress("127.0.0.1", free_port()),
            WorkerAddress("127.0.0.1", free_port()),
            WorkerAddress("127.0.0.1", free_port()),
        ),
        0,
    )


@pytest.fixture
def terms(plan: ClusterPlan, tmp_path: Path) -> Iterator[Callable[..., Terms]]:
    """Makes the terms of one worker."""
    asked: list[bool] = []

    def make(rank: int, **more: Any) -> Terms:
        about = more.pop("about", {"trainerd": "1"})
        found = Terms(replace(plan, rank=rank), about, tmp_path / "token", 5.0, lambda: bool(asked), lambda text: None)
        return replace(found, **more)

    yield make
    asked.append(True)


def ended(peer: Peer) -> dict[str, Any]:
    """What a worker is told when the chief ends it."""
    heard: list[Any] = []
    reported = threading.Event()

    def hear(kind: str, message: Any) -> None:
        heard.append((kind, message))
        reported.set()

    peer.listen(hear, lambda why: reported.set())
    assert reported.wait(SECS)
    [(kind, message)] = heard
    assert kind == "end"
    return dict(message)


def connected(plan: ClusterPlan) -> socket.socket:
    """A connection to the chief, when it listens."""

    def connect() -> socket.socket | None:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((plan.meeting_place.host, plan.meeting_place.port), timeout=SECS)
        return None

    return wait_for(connect, "the chief")


def told_of_the_end(peer: Peer) -> tuple[list[str], threading.Event]:
    """What a peer says when it is lost, and when."""
    lost: list[str] = []
    gone = threading.Event()

    def end(why: str) -> None:
        lost.append(why)
        gone.set()

    peer.listen(lambda kind, message: None, end)
    return lost, gone


def test_all_come_together_and_can_talk(terms: Callable[..., Terms]) -> None:
    said: list[str] = []
    chief = Call(lambda: gather_as_chief(terms(0, show=said.append)))
    workers = {rank: Call(partial(gather_as_worker, terms(rank))).end() for rank in (2, 1)}
    peers = chief.end()
    assert sorted(peers) == [1, 2] and said[0].startswith("waiting for workers 1 (127.0.0.1:")
    heard: list[Any] = []
    got = threading.Event()

    def hear(kind: str, message: Any) -> None:
        heard.append((kind, message["x"]))
        got.set()

    workers[2].listen(hear, lambda why: None)
    peers[2].send("hello", x=[1, 2.5, b"bytes"])
    assert got.wait(SECS) and heard == [("hello", [1, 2.5, b"bytes"])]
    lost, gone = told_of_the_end(peers[1])
    workers[1].close()
    assert gone.wait(SECS) and lost[0].startswith("worker 1 (")
    with pytest.raises(PeerLostError):
        peers[1].send("hello")
    for peer in [*peers.values(), *workers.values()]:
        peer.close()


def test_a_pause_ends_the_waiting(terms: Callable[..., Terms]) -> None:
    for gather, rank in ((gather_as_chief, 0), (gather_as_worker, 1)):
        with pytest.raises(PausedWhileGathering):
            gather(terms(rank, is_asked_to_pause=lambda: True))


def test_a_chief_that_is_paused_sends_the_others_home(terms: Callable[..., Terms]) -> None:
    asked: list[bool] = []
    chief = Call(lambda: gather_as_chief(terms(0, is_asked_to_pause=lambda: bool(asked))))
    worker = Call(lambda: gather_as_worker(terms(1))).end()
    asked.append(True)
    assert ended(worker)["phase"] == "paused"
    with pytest.raises(PausedWhileGathering):
        chief.end()


def test_workers_that_differ_are_reported_in_what(terms: Callable[..., Terms]) -> None:
    chief = Call(lambda: gather_as_chief(terms(0, about={"keras": "3.12", "python": "3.11"})))
    worker = Call(lambda: gather_as_worker(terms(1, about={"keras": "3.13", "python": "3.11"}))).end()
    message = ended(worker)
    assert message["code"] == 78 and "keras: 3.12 on the chief, 3.13 on worker 1" in message["why"]
    with pytest.raises(ConfigError, match=r"keras: 3.12 on the chief"):
        chief.end()


def test_a_rank_twice_and_another_number_of_workers_are_refused(
    terms: Callable[..., Terms], plan: ClusterPlan, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[bool] = []
    chief = Call(lambda: gather_as_chief(terms(0, is_asked_to_pause=lambda: bool(asked))))
    first = Call(lambda: gather_as_worker(terms(1))).end()
    again = Call(lambda: gather_as_worker(terms(1))).end()
    assert "there is a worker 1 already" in ended(again)["why"]
    fewer = terms(1, plan=ClusterPlan(plan.workers[:2], 1))
    assert "1 of 2 workers, where there are 3" in ended(Call(lambda: gather_as_worker(fewer)).end())["why"]
    first.close()  # now there is room for it
    wait_for(lambda: "worker 1 ended before all workers had started" in caplog.text, lambda: caplog.text)
    asked.append(True)
    with pytest.raises(PausedWhileGathering):
        chief.end()


def test_another_token_and_strangers_are_not_let_in(
    terms: Callable[..., Terms], plan: ClusterPlan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chief = Call(lambda: gather_as_chief(terms(0)))
    other = tmp_path / "other"
    token.make(other)
    with connected(plan) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger.recv(1 << 16)
    asked: list[bool] = []
    spy = Call(lambda: gather_as_worker(terms(1, token=other, is_asked_to_pause=lambda: bool(asked))))
    workers = [Call(partial(gather_as_worker, terms(rank))).end() for rank in (1, 2)]
    assert sorted(chief.end()) == [1, 2]
    asked.append(True)
    with pytest.raises(PausedWhileGathering):
        spy.end()
    assert f"the connection to the chief at {plan.meeting_place} failed: the other side has another" in caplog.text
    for worker in workers:
        worker.close()


def test_silent_connections_keep_no_worker_waiting(
    terms: Callable[..., Terms], plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainerd.workers.wire.UNPROVED_SECS", 10 * SECS)  # those that are silent stay
    chief = Call(lambda: gather_as_chief(terms(0)))
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(plan)) for _ in range(MOST_SILENT + 1)]
        workers = [Call(partial(gather_as_worker, terms(rank))).end() for rank in (1, 2)]
        assert sorted(chief.end()) == [1, 2]
        for each in silent:
            assert len(each.recv(1 << 16)) <= 40, "the chief's challenge"
            assert each.recv(1 << 16) == b"", "it is closed when all are there, and the oldest before"
    for worker in workers:
        worker.close()


def test_a_connection_that_proves_nothing_is_dropped(
    terms: Callable[..., Terms], plan: ClusterPlan, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[bool] = []
    chief = Call(lambda: gather_as_chief(terms(0, is_asked_to_pause=lambda: bool(asked))))
    for _ in range(2):
        with connected(plan) as silent:
            silent.settimeout(SECS)
            while silent.recv(1 << 16):
                pass
    asked.append(True)
    with pytest.raises(PausedWhileGathering):
        chief.end()
    [warning] = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert "127.0.0.1" in warning, "two alike are one warning: who can connect must not fill the log"


def test_what_a_worker_asks_for_is_written_to_its_request_file_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rundir, flag = RunDirectory(tmp_path), Flag()
    for what in ("save", "pause"):
        requests.take_over(1, what, {"content": "id\n", "file": "checkpoint"}, rundir, flag)
    assert [path.name for path in tmp_path.iterdir()] == ["save"] and flag.take() == {Request.SAVE, Request.PAUSE}
    assert "worker 1 was asked to pause" in caplog.text and flag.paused_by == "worker 1"
    rundir.save.unlink()
    rundir.save.symlink_to(tmp_path / "checkpoint")
    requests.take_over(1, "save", {"content": "id\n"}, rundir, flag)
    assert not (tmp_path / "checkpoint").exists(), "a link is not followed"
    assert "the request of worker 1 was not passed on" in caplog.text


def test_a_worker_that_asks_for_a_rollback_replaces_no_other_one(tmp_path: Path) -> None:
    rundir, flag = RunDirectory(tmp_path), Flag()
    requests.take_over(1, "rollback", {"content": "../checkpoint"}, rundir, flag)
    assert not rundir.rollback.exists()
    for step in (5, 7):
        requests.take_over(1, "rollback", {"content": f"{step}"}, rundir, flag)
    assert read_request(rundir) == RollbackRequest(RollbackTarget(5))


@pytest.mark.parametrize("what", ["save", "set"])
def test_what_a_worker_asks_for_is_no_longer_than_what_is_read(tmp_path: Path, what: str) -> None:
    rundir = RunDirectory(tmp_path)
    requests.take_over(1, what, {"content": "x" * 10 * request_files.LIMIT}, rundir, Flag())
    assert (tmp_path / what).stat().st_size == request_files.LIMIT


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": float("inf")},
        {"rank": "1"},
        {"about": {1: "2", "python": "3.11"}},
        {"about": {"python": {}}},
        {"host": "x" * 300},
    ],
    ids=str,
)
def test_a_worker_that_is_not_understood_keeps_no_other_from_coming(
    terms: Callable[..., Terms],
    plan: ClusterPlan,
    tmp_path: Path,
    wrong: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    chief = Call(lambda: gather_as_chief(terms(0)))
    with connected(plan) as stranger:
        wire = Wire(stranger, patience=SECS)
        wire.prove(token.make(tmp_path / "token"), is_chief=False)
        wire.send({"rank": 1, "size": 3, "about": {"trainerd": "1"}, "host": "b", "pid": 7, "clock": 0.0} | wrong)
        with pytest.raises(Gone), wire.within(SECS):
            wire.receive()
    assert "a worker on 127.0.0.1 sent an invalid message" in caplog.text
    workers = [Call(partial(gather_as_worker, terms(rank))).end() for rank in (1, 2)]
    assert sorted(chief.end()) == [1, 2]
    for worker in workers:
        worker.close()


def test_a_clock_that_is_wrong_is_reported(terms: Callable[..., Terms], caplog: pytest.LogCaptureFixture) -> None:
    chief = Call(lambda: gather_as_chief(terms(0, clock=lambda: 1000.0)))
    for rank in (1, 2):
        Call(partial(gather_as_worker, terms(rank, clock=[None, lambda: 1001.0, lambda: 1600.0][rank]))).end()
    chief.end()
    [warning] = [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]
    assert warning.startswith("the clock of worker 2") and "+600 s" in warning


def test_a_port_in_use_is_reported(terms: Callable[..., Terms], plan: ClusterPlan) -> None:
    for port in (plan.workers[0].port, plan.workers[0].port + 1):
        with socket.socket() as taken:
            taken.bind((plan.workers[0].host, port))
            taken.listen()
            with pytest.raises(ConfigError, match=rf"cannot listen at 127.0.0.1:{port}.*another process"):
                gather_as_chief(terms(0))


def test_an_address_of_another_machine_is_reported(terms: Callable[..., Terms]) -> None:
    elsewhere = ClusterPlan((WorkerAddress("192.0.2.1", 29500), WorkerAddress("127.0.0.1", 1)), 0)
    with pytest.raises(ConfigError, match="this machine has no such address"):
        gather_as_chief(terms(0, plan=elsewhere))


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [("x" * 40, 0o644, "cluster.token: others may read"), ("short", 0o600, "fewer than 16 characters")],
)
def test_a_bad_token_is_reported(
    terms: Callable[..., Terms], tmp_path: Path, content: str, mode: int, said: str
) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    for gather, rank in ((gather_as_chief, 0), (gather_as_worker, 1)):
        with pytest.raises(ConfigError, match=said):
            gather(terms(rank))


def test_the_token_is_its_owners_alone(tmp_path: Path) -> None:
    made = token.make(tmp_path / "token")
    assert token.read(tmp_path / "token") == made == token.make(tmp_path / "token")
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert token.read(tmp_path / "none") is None


def wires() -> tuple[Wire, Wire]:
    one, other = socket.socketpair()
    return Wire(one, patience=1.0), Wire(other, patience=1.0)


def test_what_the_other_says_at_last_is_read_before_it_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a worker that says why it fails may be told of as a broken pipe."""
    monkeypatch.setattr("trainerd.workers.peer.LAST_WORDS_SECS", SECS)
    one, other = wires()
    peer = Peer(one, "worker 7", heartbeat_secs=SECS)
    said: list[str] = []
    is_slow, may_read, is_lost = threading.Event(), threading.Event(), threading.Event()

    def hear(kind: str, message: Any) -> None:
        is_slow.set()
        assert may_read.wait(SECS)
        said.append(kind)

    def lose(why: str) -> None:
        said.append(why)
        is_lost.set()

    peer.listen(hear, lose)
    for kind in ("state", "failed"):
        other.send({"kind": kind})
    assert is_slow.wait(SECS)
    other.close()
    sender = Call(lambda: peer.send("state"))
    may_read.set()
    with pytest.raises(PeerLostError, match="the connection was closed"):
        sender.end()
    assert is_lost.wait(SECS)
    assert said == ["state", "failed", "worker 7 is gone: the connection was closed"]


def test_a_message_without_an_end_ends_the_connection() -> None:
    one, other = socket.socketpair()
    deep = b"\x91" * 5_000  # arrays within arrays
    with one, other:
        one.sendall(len(deep).to_bytes(8, "big") + deep)
        with pytest.raises(Gone, match="not a message"):
            Wire(other, patience=1.0).receive()


def test_silence_counts_as_gone() -> None:
    one, other = wires()
    peer = Peer(one, "worker 7", heartbeat_secs=0.4)
    lost, gone = told_of_the_end(peer)
    assert gone.wait(SECS) and lost == ["worker 7 is gone: nothing was heard of it for 0 s"]
    other.close()


def test_a_large_message_is_heard_while_it_arrives() -> None:
    """The state of a worker's input may take longer than a heartbeat."""
    other, one = socket.socketpair()
    now = 0.0
    peer = Peer(Wire(one, patience=1.0), "worker 7", heartbeat_secs=1e9, timer=lambda: now)
    told_of_the_end(peer)
    other.sendall((1000).to_bytes(8, "big"))
    for now in (1.0, 2.0, 3.0):
        other.sendall(b"0")
        wait_for(lambda now=now: peer.heard_at == now, "a part of a message")  # type: ignore[misc]
    peer.close()
    other.close()


def test_a_process_that_stood_still_itself_does_not_blame_the_other() -> None:
    one, other = wires()
    times = iter([0.0, 0.0, 50.0, 50.1, 100.0])
    last = threading.Event()

    def timer() -> float:
        now = next(times, 100.1)
        if now > 100.0:
            last.set()
        return now

    peer = Peer(one, "worker 7", heartbeat_secs=0.4, timer=timer)
    lost, gone = told_of_the_end(peer)
    assert last.wait(SECS) and not gone.is_set() and not lost
    peer.close()
    other.close()


def test_a_peer_that_drips_is_not_waited_for() -> None:
    one, other = socket.socketpair()
    wire, drips = Wire(one, patience=1.0), threading.Event()

    def drip() -> None:
        while not drips.wait(0.05):
            other.send(b"0")

    dripping = Call(drip)
    with pytest.raises(Gone), wire.within(0.5):
        wire.prove(b"token", is_chief=True)
    drips.set()
    dripping.end()
    other.close()
    wire.close()


@pytest.mark.parametrize("size", [2**41, 2000])
def test_a_frame_that_is_too_large_is_not_waited_for(size: int) -> None:
    one, other = socket.socketpair()
    wire = Wire(one, patience=1.0)
    other.sendall(size.to_bytes(8))
    with pytest.raises(Gone, match="announced a message"):
        wire.prove(b"token", is_chief=True) if size == 2000 else wire.receive()
    other.close()
    wire.close()
