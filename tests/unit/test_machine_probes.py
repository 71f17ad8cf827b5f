"""What is read of the machine for `[when]`: terminals, desktops, load, GPUs, temperature, battery."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.unit.conftest import FakeTime
from tests.waiting import wait_for
from trainerd.agent.when.facts import MachineFacts, Probe
from trainerd.agent.when.idle import IdleTime, connect
from trainerd.agent.when.load import OthersLoad
from trainerd.agent.when.machine import (
    MachineProbes,
    gpu_memory,
    machine_readers,
    on_battery,
    others_on_gpus,
    temperature,
)
from trainerd.agent.when.reading import Reading
from trainerd.system.gpus import Gpus, NvmlError
from trainerd.system.process_identity import lineage
from trainerd.watch.interruptions.interruption import SourceError

NOW = 1_000_000.0
TICKS = os.sysconf("SC_CLK_TCK")

# ---------------------------------------------------------------------- who uses the machine


class FakeSessions:
    """A logind with sessions, each with its properties."""

    def __init__(self, *sessions: dict[str, Any]) -> None:
        self.sessions = sessions
        self.fails = self.is_closed = False

    def call(self, method: str) -> list[tuple[str, int, str, str, str]]:
        if self.fails:
            raise SourceError("the connection is lost")
        return [(str(number), 1000, "ada", "seat0", f"/session/{number}") for number in range(len(self.sessions))]

    def properties(self, path: str, interface: str) -> dict[str, Any]:
        return self.sessions[int(path.rpartition("/")[2])]

    def close(self) -> None:
        self.is_closed = True


def desktop(*, idle_for: float | None = None, **others: Any) -> dict[str, Any]:
    """A session of a desktop; `idle_for` seconds idle, or in use."""
    since = NOW - 3600 if idle_for is None else NOW - idle_for
    hints = {"IdleHint": idle_for is not None, "IdleSinceHint": int(since * 1e6)}
    return {"Class": "user", "Type": "wayland", "Active": True, **hints, **others}


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Path]:
    """A real terminal, as tty3 of a folder of devices."""
    ours, theirs = os.openpty()
    path = Path(os.ttyname(theirs))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "tty3").symlink_to(path)
    yield path
    os.close(ours)
    os.close(theirs)


def idle(devices: Path, *sessions: dict[str, Any]) -> Reading[float]:
    return IdleTime(lambda: FakeSessions(*sessions), devices, lambda: NOW).read()


def test_the_last_key_typed_at_a_terminal_counts(terminal: Path, tmp_path: Path) -> None:
    os.utime(terminal, (NOW - 90, NOW))
    assert idle(tmp_path / "dev") == Reading(90.0)
    assert idle(tmp_path / "dev", desktop(idle_for=30)) == Reading(30.0)
    assert idle(tmp_path / "dev", desktop(idle_for=200)) == Reading(90.0)


def test_a_terminal_that_was_used_before_the_clock_was_set_back_does_not_count(terminal: Path, tmp_path: Path) -> None:
    os.utime(terminal, (NOW + 7200, NOW))
    assert idle(tmp_path / "dev", desktop(idle_for=500)) == Reading(500.0)
    os.utime(terminal, (NOW + 3, NOW))
    assert idle(tmp_path / "dev", desktop(idle_for=500)) == Reading(0.0)


def test_a_desktop_counts_as_used_until_it_says_that_it_is_idle(tmp_path: Path) -> None:
    assert idle(tmp_path, desktop()) == Reading(0.0)
    assert idle(tmp_path, desktop(), desktop(idle_for=400)) == Reading(0.0)
    found = idle(tmp_path, desktop(IdleSinceHint=0))
    assert found.value == 0 and "session 0 has never reported that it is idle" in found.trouble


@pytest.mark.parametrize("others", [{"Class": "greeter"}, {"Active": False}, {"Type": "tty"}])
def test_a_session_that_nobody_sees_does_not_count(tmp_path: Path, others: dict[str, Any]) -> None:
    assert idle(tmp_path, desktop(idle_for=60), desktop(**others)) == Reading(60.0)


def test_without_logind_terminals_count(terminal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    os.utime(terminal, (NOW - 90, NOW))
    found = IdleTime(connect, tmp_path / "dev", lambda: NOW).read()
    assert found.value == 90 and "no system bus: the agent sees the use of terminals, and not" in found.trouble
    found = IdleTime(connect, tmp_path / "none", lambda: NOW).read()
    assert found.value is None and "no system bus" in found.trouble


def test_a_connection_that_is_lost_is_made_again(tmp_path: Path) -> None:
    connections = [FakeSessions(desktop(idle_for=60)), FakeSessions(desktop(idle_for=70))]
    waiting = iter(connections)
    probe = IdleTime(lambda: next(waiting), tmp_path, lambda: NOW)
    assert probe.read().value == 60
    connections[0].fails = True
    assert probe.read() == Reading(None, "the connection is lost") and connections[0].is_closed
    assert probe.read().value == 70


# ---------------------------------------------------------------------- the load of others


class FakeProc:
    """A folder like /proc of a machine with some processes; times are in seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.busy = 0.0
        self.spent(0.0)

    def spent(self, secs: float) -> None:
        """Somebody has used the processor for so long."""
        self.busy += secs
        ticks = round(self.busy * TICKS)
        # user nice system idle iowait irq softirq steal guest guest_nice
        self._write("stat", f"cpu  {ticks - 3} 0 1 99999 500 1 1 77 5 0\ncpu0 1 2 3\n")

    def process(self, pid: int, secs: float, *, parent: int = 1, started: float = 1.0, ended: float = 0.0) -> None:
        """A process that has used so much, and its children that have ended."""
        numbers = [0] * 44
        numbers[0] = parent
        numbers[10], numbers[12] = round(secs * TICKS), round(ended * TICKS)
        numbers[18] = round(started * TICKS)
        self._write(f"{pid}/stat", f"{pid} (a ) b) S {' '.join(map(str, numbers))}\n")

    def end(self, pid: int) -> None:
        (self.folder / str(pid) / "stat").unlink()

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_what_the_runs_and_their_children_use_is_not_the_load_of_others(proc: FakeProc, clock: FakeTime) -> None:
    load = OthersLoad(proc.folder, clock, lambda: 9.0)
    proc.process(10, 100.0)
    proc.process(11, 50.0, parent=10)
    proc.process(20, 70.0)
    assert load.read([10]) is None, "the load average has the run in it"
    clock.sleep(10.0)
    proc.spent(75.0)
    proc.process(10, 130.0)
    proc.process(11, 70.0, parent=10)
    proc.process(20, 95.0)
    assert load.read([10]) == pytest.approx(2.5)


def test_a_child_that_ends_is_still_of_its_run(proc: FakeProc, clock: FakeTime) -> None:
    load = OthersLoad(proc.folder, clock)
    proc.process(10, 1.0)
    proc.process(11, 50.0, parent=10)
    load.read([10])
    clock.sleep(10.0)
    proc.spent(10.0)
    proc.end(11)
    proc.process(10, 2.0, ended=59.0)
    assert load.read([10]) == pytest.approx(0.0)


def test_a_run_that_starts_is_no_load_and_one_that_is_new_to_us_has_no_past(proc: FakeProc, clock: FakeTime) -> None:
    load = OthersLoad(proc.folder, clock, lambda: 0.4)
    proc.process(20, 1000.0, started=5.0)
    assert load.read([]) == 0.4
    clock.sleep(10.0)
    proc.spent(30.0)
    proc.process(10, 20.0, started=9.0)
    assert load.read([10]) == pytest.approx(1.0)
    clock.sleep(10.0)
    proc.spent(40.0)
    assert load.read([10, 20]) == pytest.approx(2.5), "over both"


def test_a_load_is_that_of_the_last_minute(proc: FakeProc, clock: FakeTime) -> None:
    load = OthersLoad(proc.folder, clock, lambda: 7.0)
    load.read([])
    clock.sleep(10.0)
    proc.spent(40.0)
    assert load.read([]) == pytest.approx(4.0)
    for _ in range(5):
        clock.sleep(10.0)
        found = load.read([])
    assert found == pytest.approx(40 / 60)
    clock.sleep(10.0)
    assert load.read([]) == 0.0
    clock.sleep(3600.0)
    assert load.read([]) == 7.0, "it was not measured meanwhile"


def test_this_machine_has_a_load(clock: FakeTime) -> None:
    load = OthersLoad(timer=clock)
    assert load.read([os.getpid()]) is None
    clock.sleep(1.0)
    found = load.read([os.getpid()])
    assert found is not None and found >= 0


# ---------------------------------------------------------------------- GPUs and temperature


class FakeGpus:
    """NVML with two GPUs, whose processes and temperatures a test sets; its methods are named as NVML's."""

    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *pids: list[int]) -> None:
        self.pids = pids
        self.starts = 0
        self.fails = False
        self.used = 0

    def nvmlInit(self) -> None:
        self.starts += 1

    def nvmlDeviceGetCount(self) -> int:
        if self.fails:
            raise RuntimeError("GPU is lost")
        return len(self.pids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=5 if pid > 1 else None) for pid in self.pids[handle]]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(free=100, used=0 if self.pids[handle] else self.used)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 60 + handle


def test_processes_of_the_runs_and_of_another_namespace_are_not_others(monkeypatch: pytest.MonkeyPatch) -> None:
    own, gone = os.getpid(), (1 << 22) + 1
    monkeypatch.setitem(sys.modules, "pynvml", FakeGpus([own, gone], [own, 1]))
    assert others_on_gpus(Gpus(), [own]).value == {0: (), 1: (1,)}
    assert others_on_gpus(Gpus(), [os.getppid()]).value == {0: (), 1: (1,)}, "a child is the run's"
    assert others_on_gpus(Gpus(), []).value == {0: (own,), 1: (own, 1)}


def test_the_memory_that_the_runs_have_on_a_gpu_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpid()
    gone = (1 << 22) + 1
    gpus = FakeGpus([own], [os.getppid()], [own, 1], [own, gone], [])
    monkeypatch.setitem(sys.modules, "pynvml", gpus)
    assert gpu_memory(Gpus(), [own]).value == {0: 105, 1: 100, 4: 100}, "NVML does not say whose memory it is"
    gpus.used = 1 << 31
    assert gpu_memory(Gpus(), [own]).value == {0: 105, 1: 100}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "is not installed" in gpu_memory(Gpus(), [own]).trouble


def test_a_driver_that_fails_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeGpus([])
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpus = Gpus()
    assert gpus.processes() == {0: []} and gpus.temperatures() == {0: 60.0} and nvml.starts == 1
    nvml.fails = True
    assert others_on_gpus(gpus, []) == Reading(None, "NVML fails: GPU is lost")
    nvml.fails = False
    assert gpus.processes() == {0: []} and nvml.starts == 2


def test_without_the_package_of_nvml_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlError, match=r"is not installed\. Install it with `"):
        Gpus().processes()


def test_the_hottest_processor_or_gpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def sensors(**every: list[float]) -> None:
        found = {name: [SimpleNamespace(current=each) for each in all_of] for name, all_of in every.items()}
        monkeypatch.setattr(psutil, "sensors_temperatures", lambda: found, raising=False)

    monkeypatch.setitem(sys.modules, "pynvml", None)
    sensors(coretemp=[50.0, 71.5, 0.0, -55.0, 65261.8], nvme=[88.0])
    assert temperature(Gpus()) == Reading(71.5)
    sensors(nvme=[88.0], acpitz=[27.8])
    found = temperature(Gpus())
    assert found.value is None and found.trouble
    monkeypatch.setitem(sys.modules, "pynvml", FakeGpus([], []))
    assert temperature(Gpus()) == Reading(61.0)
    sensors(k10temp=[64.0])
    assert temperature(Gpus()) == Reading(64.0)


@pytest.mark.parametrize(
    ("plugged", "expected"), [(True, False), (False, True), (None, None)], ids=["mains", "battery", "unknown"]
)
def test_a_battery_that_is_not_charged_is_used(
    monkeypatch: pytest.MonkeyPatch, plugged: bool | None, expected: bool | None
) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(power_plugged=plugged), raising=False)
    assert on_battery().value is expected
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None)
    assert on_battery() == Reading(False)


# ---------------------------------------------------------------------- all of them


def test_only_what_is_wanted_is_read_and_not_more_than_every_five_seconds(clock: FakeTime) -> None:
    calls = list[Probe]()

    def battery(own: Collection[int]) -> Reading[bool]:
        calls.append(Probe.BATTERY)
        return Reading(len(calls) > 1)

    probes = MachineProbes({Probe.BATTERY: battery}, clock)
    assert probes.read([], []) == MachineFacts() and calls == []
    for _ in range(5):
        assert probes.read([Probe.BATTERY], []) == MachineFacts(on_battery=False)
        clock.sleep(0.75)
    clock.sleep(1.25)
    assert probes.read([Probe.BATTERY], []).on_battery is True and len(calls) == 2


def test_a_probe_that_fails_keeps_no_run_from_training_and_is_reported_once(
    clock: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(own: Collection[int]) -> Reading[float]:
        raise OSError("the sensor is broken")

    readers = {Probe.TEMP: fail, Probe.IDLE: lambda own: Reading(3.0, "no desktop is seen")}
    probes = MachineProbes(readers, clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert probes.read([Probe.TEMP, Probe.IDLE], []) == MachineFacts(idle_secs=3.0)
            clock.sleep(6.0)
    assert sorted(record.getMessage() for record in caplog.records) == [
        "idle_mins cannot be checked in full: no desktop is seen",
        "max_temp cannot be checked in full: OSError: the sensor is broken",
    ]


def test_a_probe_that_does_not_answer_is_not_waited_for_again(
    clock: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    may_answer, calls = threading.Event(), list[int]()

    def hang(own: Collection[int]) -> Reading[float]:
        calls.append(1)
        may_answer.wait()
        return Reading(70.0)

    probes = MachineProbes({Probe.TEMP: hang}, clock, patience=0.01)
    for _ in range(3):
        assert probes.read([Probe.TEMP], []) == MachineFacts()
        clock.sleep(6.0)
    assert len(calls) == 1 and caplog.text.count("it does not answer") == 1
    may_answer.set()

    def answers() -> bool:
        clock.sleep(6.0)
        return probes.read([Probe.TEMP], []).temp == 70.0

    wait_for(answers, "an answer")


def test_this_machine_can_be_read(clock: FakeTime) -> None:
    facts = MachineProbes(machine_readers(), clock).read(list(Probe), [os.getpid()])
    assert facts.on_battery in (True, False, None)


def test_a_process_has_a_lineage() -> None:
    found = list(lineage(os.getpid()))
    assert found[:2] == [os.getpid(), os.getppid()] and list(lineage((1 << 22) + 1)) == []
