"""state.json: written whole, read by anyone, and honest about who is alive."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.unit.conftest import FakeTime
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Answer, LastCheckpoint, Phase, State, read_state
from trainerd.rundir.state_writer import MIN_SECS, StateWriter
from trainerd.system.gpus import DeviceState
from trainerd.system.process_identity import LiveProcess, is_process, process_identity

FULL = State(
    phase=Phase.TRAINING,
    pid=1,
    step=10,
    max_steps=110,
    metrics={"loss": 0.5, "bad": math.nan},
    steps_per_sec=50.0,
    last_checkpoint=LastCheckpoint(9, "/x/model.ckpt-9", "schedule", 0.1, 100, 5.0),
    warnings=["w"],
    answers=[Answer(["a"], 9, None)],
    devices=[DeviceState("GPU:0", 3, 4, 0.5), DeviceState("GPU:1")],
)


def test_a_state_survives_its_file(odd_rundir: RunDirectory) -> None:
    FULL.write(odd_rundir.state)
    found = read_state(odd_rundir.state)
    assert found is not None and math.isnan(found.metrics["bad"])
    assert replace(found, metrics={}) == replace(FULL, metrics={})
    assert found.eta_secs == 2.0
    assert json.loads(odd_rundir.state.read_text())["metrics"]["bad"] is None


def test_a_training_ends_at_the_first_of_its_ends_that_is_ahead() -> None:
    state = State(step=10, max_steps=50, last_step=30, epochs=3, metrics={"epoch": 1.0, "loss": 0.5})
    assert state.end == 30 and state.shown_metrics() == {"epoch": "1 of 3", "loss": "0.5"}
    assert replace(state, step=31).end == 50 and replace(state, step=51).end is None
    assert replace(state, epochs=None).shown_metrics()["epoch"] == "1"


def test_the_answer_of_a_file_is_the_last_one(rundir: RunDirectory) -> None:
    first, last = Answer(["a"], 9, None), Answer(["b", "c"], None, "full")
    state = State(answers=[first, last])
    data = state.to_json()
    assert data["answer"] == data["answers"][-1] == {"ids": ["b", "c"], "step": None, "error": "full"}
    assert (state.answer_to("a"), state.answer_to("c"), state.answer_to("d")) == (first, last, None)


def test_the_file_of_an_earlier_version_has_one_answer_and_no_devices(rundir: RunDirectory) -> None:
    data = State().to_json() | {"answer": {"ids": ["a"], "step": 9, "error": None}}
    del data["answers"], data["devices"]
    rundir.state.write_text(json.dumps(data))
    found = read_state(rundir.state)
    assert found is not None and found.answer_to("a") == Answer(["a"], 9, None) and found.devices == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"phase": "dancing"}', b"\xff", b'{"step": 1}', b"[" * 200_000]
)
def test_a_damaged_state_reports_nothing(rundir: RunDirectory, content: bytes) -> None:
    rundir.state.write_bytes(content)
    assert read_state(rundir.state) is None


def test_fields_of_another_version_are_ignored(rundir: RunDirectory) -> None:
    FULL.write(rundir.state)
    data = json.loads(rundir.state.read_text()) | {"from_the_future": 1}
    rundir.state.write_text(json.dumps(data))
    assert read_state(rundir.state) is not None


def test_a_process_is_distinguished_from_another_with_its_pid() -> None:
    _, uptime = process_identity(os.getpid())
    assert is_process(os.getpid(), uptime)
    assert not is_process(os.getpid(), uptime - 10)
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert not is_process(child.pid, uptime)


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_the_end_of_a_process_is_noticed_before_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, has_pidfd: bool
) -> None:
    def missing(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if not has_pidfd:
        monkeypatch.setattr(os, "pidfd_open", missing)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        _, uptime = process_identity(child.pid)
        process, other = LiveProcess(child.pid, uptime), LiveProcess(child.pid, uptime - 10)
        assert process.is_alive() and not other.is_alive()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        files = len(os.listdir("/proc/self/fd"))
        assert not process.is_alive() and not process.is_alive()
        assert len(os.listdir("/proc/self/fd")) == files - has_pidfd, "what has ended holds no file"


def test_the_file_is_written_a_few_times_a_second_at_most(rundir: RunDirectory, clock: FakeTime) -> None:
    file = StateWriter(rundir, timer=clock)

    def written() -> int:
        found = read_state(rundir.state)
        assert found is not None
        return found.step

    for step in range(100):
        file.observe(State(step=step))
        clock.now += MIN_SECS / 200
    assert written() == 0
    file.flush()
    assert written() == 0
    clock.now += MIN_SECS
    file.flush()
    assert written() == 99
    file.observe(State(step=100))
    file.observe(State(step=101, phase=Phase.PAUSED))
    assert written() == 101


def test_a_state_that_cannot_be_written_is_logged_once(
    rundir: RunDirectory, clock: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    rundir.state.mkdir()
    file = StateWriter(rundir, timer=clock)
    for step in range(3):
        file.observe(State(step=step))
        clock.now += 1
    assert len(caplog.records) == 1
    rundir.state.rmdir()
    file.observe(State(step=9))
    assert read_state(rundir.state) is not None
