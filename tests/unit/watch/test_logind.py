"""Sleep and shutdown as logind announces them: the lock is held until the runs have answered, and taken again."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest

from trainerd.watch.interruptions.interruption import AbsentError, SourceError
from trainerd.watch.interruptions.logind import Logind
from trainerd.watch.interruptions.system_bus import SystemBus

Signal = tuple[str, bool]


class FakeLock:
    """A file descriptor."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class FakeBus:
    """A connection to a logind that does what a test says.

    Attributes:
      signals: come one at each wait; an error is raised.
      refuses: why it gives no lock; empty if it does.
      refuses_only: the one kind for which that is so; empty if it is so for all.
    """

    def __init__(self, *signals: Signal | SourceError | None) -> None:
        self.signals = list(signals)
        self.locks: list[FakeLock] = []
        self.whats: list[str] = []
        self.refuses = self.refuses_only = ""
        self.delay_fails = self.is_closed = False

    def inhibit(self, what: str, who: str, why: str) -> FakeLock:
        self.whats.append(what)
        if self.refuses and self.refuses_only in ("", what):
            raise SourceError(self.refuses)
        self.locks.append(FakeLock())
        return self.locks[-1]

    def most_delay_secs(self) -> float:
        if self.delay_fails:
            raise SourceError("it does not answer")
        return 30.0

    def next_signal(self, secs: float) -> Signal | None:
        found = self.signals.pop(0) if self.signals else None
        if isinstance(found, SourceError):
            raise found
        return found

    def close(self) -> None:
        self.is_closed = True


def held(bus: FakeBus) -> int:
    """How many locks are held."""
    return sum(not lock.is_closed for lock in bus.locks)


def test_the_machine_waits_for_the_runs_at_each_sleep() -> None:
    bus = FakeBus(None, *[("PrepareForSleep", True), ("PrepareForSleep", False)] * 2, None)
    source = Logind(lambda: bus, ("sleep", "shutdown"), lambda: 1000.0)
    assert source.poll() is None and bus.whats == ["sleep", "shutdown"]
    for _ in range(2):
        found = source.poll()
        assert found is not None and (found.kind, found.key, found.secs) == ("sleep", "sleep 1000", 29.5)
        assert held(bus) == 2
        source.finish()
        assert held(bus) == 0
        assert source.poll() is None and held(bus) == 0  # it is awake
    assert source.poll() is None and held(bus) == 2
    assert len(bus.locks) == 6


def test_a_shutdown_is_announced_and_no_lock_is_asked_for_meanwhile() -> None:
    bus = FakeBus(("PrepareForShutdown", True))
    source = Logind(lambda: bus, ("shutdown",))
    found = source.poll()
    assert found is not None and (found.kind, found.title) == ("shutdown", "the machine shuts down")
    source.finish()
    assert source.poll() is None and bus.whats == ["shutdown"]


def test_only_the_kinds_that_are_wanted_are_delayed_and_announced() -> None:
    bus = FakeBus(("PrepareForShutdown", True), ("Other", True))
    source = Logind(lambda: bus, ("sleep",))
    assert source.poll() is None and source.poll() is None and bus.whats == ["sleep"] and held(bus) == 1


def test_without_a_lock_the_runs_are_asked_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    bus = FakeBus(None, None, ("PrepareForSleep", True), ("PrepareForSleep", False))
    bus.refuses = "access is denied"
    source = Logind(lambda: bus, ("sleep",))
    assert source.poll() is None and source.poll() is None
    assert caplog.text.count("access is denied") == 1
    found = source.poll()
    assert found is not None and found.secs == 4.5
    bus.refuses = ""
    source.finish()
    source.poll()
    source.poll()
    assert held(bus) == 1


def test_a_lock_that_is_refused_is_asked_for_again_and_the_other_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    bus = FakeBus(None, ("PrepareForShutdown", True), ("PrepareForShutdown", False), None)
    bus.refuses, bus.refuses_only = "access is denied", "shutdown"
    source = Logind(lambda: bus, ("sleep", "shutdown"))
    assert source.poll() is None and held(bus) == 1
    found = source.poll()
    assert found is not None and found.secs == 4.5, "the machine does not wait for a shutdown"
    assert caplog.text.count("logind grants no lock for shutdown, and the machine will not wait") == 1
    bus.refuses = ""
    assert source.poll() is None and source.poll() is None
    assert bus.whats == ["sleep", "shutdown", "shutdown", "shutdown"] and held(bus) == 2


def test_a_delay_that_cannot_be_read_is_loginds_default() -> None:
    bus = FakeBus(("PrepareForSleep", True))
    bus.delay_fails = True
    found = Logind(lambda: bus, ("sleep",)).poll()
    assert found is not None and found.secs == 4.5


def test_a_bus_that_is_lost_is_connected_to_again() -> None:
    buses = [FakeBus(None, SourceError("it was reset")), FakeBus(("PrepareForSleep", True))]
    waiting = iter(buses)
    source = Logind(lambda: next(waiting), ("sleep",))
    assert source.poll() is None
    with pytest.raises(SourceError, match="reset"):
        source.poll()
    assert held(buses[0]) == 0 and buses[0].is_closed
    assert source.poll() is not None and held(buses[1]) == 1


def test_a_bus_that_is_not_there_is_an_error() -> None:
    def connect() -> FakeBus:
        raise SourceError("there is none")

    with pytest.raises(SourceError, match="there is none"):
        Logind(connect, ("sleep",)).poll()


# ---------------------------------------------------------------------- the bus


def test_a_machine_without_a_system_bus_has_no_logind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    with pytest.raises(AbsentError, match="no system bus"):
        SystemBus()
    monkeypatch.setitem(sys.modules, "jeepney", None)
    with pytest.raises(AbsentError, match=r"`jeepney` is not installed: .*\. Install it with `"):
        SystemBus()


def test_what_listens_in_place_of_a_bus_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/bus")
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SourceError, match="the system bus cannot be used"):
            SystemBus()
        thread.join()
