"""Clusters of TensorFlow 1: parameter servers, workers and a chief, as programs of that time have them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.trainers import saved
from tests.unit.test_workers_gathering import free_port
from tests.waiting import wait_for
from trainerd.rundir.paths import RunDirectory

PROGRAM = Path(__file__).with_name("ps_programs.py")


class Tasks:
    """The processes of one cluster."""

    def __init__(self, folder: Path, how: str, kinds: dict[str, int]) -> None:
        self.folder, self.how = folder, how
        self.cluster = {kind: [f"127.0.0.1:{free_port()}" for _ in range(count)] for kind, count in kinds.items()}
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str, index: int, last: int = 3000) -> subprocess.Popen[bytes]:
        task = {"cluster": self.cluster, "task": {"type": kind, "index": index}}
        environment = os.environ | {"TF_CONFIG": json.dumps(task), "LAST": str(last), "TF_CPP_MIN_LOG_LEVEL": "2"}
        environment["PYTHONPATH"] = os.pathsep.join([str(PROGRAM.parents[2]), os.environ.get("PYTHONPATH", "")])
        with (self.folder / f"{kind}-{index}.log").open("ab") as log:
            command = [sys.executable, str(PROGRAM), self.how]
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def said(self) -> str:
        return "\n".join(f"-- {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def tasks(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tasks]:
    made = Tasks(tmp_path, *request.param)
    yield made
    made.close()


def end(process: Any, tasks: Tasks) -> int:
    try:
        return int(process.wait(60))
    except subprocess.TimeoutExpired:
        pytest.fail(f"it did not end:\n{tasks.said()}")


@pytest.mark.parametrize(
    "tasks", [(how, {"ps": 1, "worker": 2}) for how in ("monitored", "supervisor")], indirect=True, ids=str
)
def test_a_cluster_trains_is_paused_by_its_chief_and_resumes(tasks: Tasks) -> None:
    rundir = RunDirectory(tasks.folder / "run")
    tasks.start("ps", 0)
    chief, worker = tasks.start("worker", 0, last=10**7), tasks.start("worker", 1, last=10**7)
    wait_for(lambda: bool(rundir.path.exists() and len(rundir.steps()) >= 2), tasks.said)
    worker.send_signal(signal.SIGTERM)
    assert end(worker, tasks) == 0, tasks.said()
    chief.send_signal(signal.SIGTERM)
    assert end(chief, tasks) == 0, tasks.said()
    paused = saved(rundir)[0]
    assert paused > 0
    chief, worker = (tasks.start("worker", task, last=paused + 2000) for task in (0, 1))  # TensorFlow waits for all
    assert [end(chief, tasks), end(worker, tasks)] == [0, 0], tasks.said()
    assert saved(rundir)[0] >= paused + 2000, tasks.said()


@pytest.mark.parametrize("tasks", [("experiment", {"ps": 1, "master": 1, "worker": 1})], indirect=True, ids=str)
def test_an_experiment_of_several_tasks(tasks: Tasks) -> None:
    server = tasks.start("ps", 0)
    worker, master = tasks.start("worker", 0), tasks.start("master", 0)
    assert [end(master, tasks), end(worker, tasks)] == [0, 0], tasks.said()
    assert server.poll() is None, "run_std_server serves for ever"
    rundir = RunDirectory(tasks.folder / "run")
    assert saved(rundir)[0] >= 3000
    assert list((tasks.folder / "run" / "eval").glob("events*")), tasks.said()
