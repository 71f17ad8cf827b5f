"""Clusters of TensorFlow 1: parameter servers, workers and a chief, as programs of that time have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Fork
from tests.process.trainers import Trainer, saved
from tests.unit.test_workers_gathering import free_port
from tests.waiting import wait_for
from trainerd.rundir.paths import RunDirectory

PROGRAM = Path(__file__).with_name("ps_programs.py")


class Tasks:
    """The processes of one cluster."""

    def __init__(self, fork: Fork, folder: Path, how: str, kinds: dict[str, int]) -> None:
        self.fork, self.folder, self.how = fork, folder, how
        self.cluster = {kind: [f"127.0.0.1:{free_port()}" for _ in range(count)] for kind, count in kinds.items()}
        self.started: list[tuple[str, Trainer]] = []

    def start(self, kind: str, index: int, last: int = 3000) -> Trainer:
        task = {"cluster": self.cluster, "task": {"type": kind, "index": index}}
        env = {"TF_CONFIG": json.dumps(task), "LAST": str(last)}
        process = self.fork(self.folder, program=str(PROGRAM), arguments=[self.how], env=env)
        self.started.append((f"{kind} {index}", process))
        return process

    def said(self) -> str:
        return "\n".join(f"-- {name}\n{process.text}" for name, process in self.started)


@pytest.fixture
def tasks(fork: Fork, tmp_path: Path, request: pytest.FixtureRequest) -> Tasks:
    return Tasks(fork, tmp_path, *request.param)


@pytest.mark.parametrize(
    "tasks", [(how, {"ps": 1, "worker": 2}) for how in ("monitored", "supervisor")], indirect=True, ids=str
)
def test_a_cluster_trains_is_paused_by_its_chief_and_resumes(tasks: Tasks) -> None:
    rundir = RunDirectory(tasks.folder / "run")
    tasks.start("ps", 0)
    chief, worker = tasks.start("worker", 0, last=10**7), tasks.start("worker", 1, last=10**7)
    wait_for(lambda: bool(rundir.path.exists() and len(rundir.steps()) >= 2), tasks.said)
    assert worker.pause() == 0, tasks.said()
    assert chief.pause() == 0, tasks.said()
    paused = saved(rundir)[0]
    assert paused > 0
    chief, worker = (tasks.start("worker", task, last=paused + 2000) for task in (0, 1))  # TensorFlow waits for all
    assert [chief.end(), worker.end()] == [0, 0], tasks.said()
    assert saved(rundir)[0] >= paused + 2000, tasks.said()


@pytest.mark.parametrize("tasks", [("experiment", {"ps": 1, "master": 1, "worker": 1})], indirect=True, ids=str)
def test_an_experiment_of_several_tasks(tasks: Tasks) -> None:
    server = tasks.start("ps", 0)
    worker, master = tasks.start("worker", 0), tasks.start("master", 0)
    assert [master.end(), worker.end()] == [0, 0], tasks.said()
    assert server.is_alive(), "run_std_server serves for ever"
    rundir = RunDirectory(tasks.folder / "run")
    assert saved(rundir)[0] >= 3000
    assert list((tasks.folder / "run" / "eval").glob("events*")), tasks.said()
