"""Fixtures of the tests of several workers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import Start, small_disk, start
from tests.process.trainers import Trainer, variables
from tests.unit.test_workers_gathering import free_port
from tests.waiting import DEADLINE_SECS
from trainerd.rundir.paths import RunDirectory

__all__ = ["small_disk", "start"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the jobs of these tests."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("jobs.py", "two_devices.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    return folder


@dataclass
class Cluster:
    """The workers of one run on this machine.

    Attributes:
      workers: those that were started last, by rank.
    """

    project: Path
    begin: Start
    workers: list[Trainer] = field(default_factory=list)

    def configure(self, entry: str, count: int, more: str = "", keys: str = "", module: str = "jobs") -> Path:
        """Write a config for so many workers, at ports that nobody has."""
        ports = ", ".join(f'"127.0.0.1:{free_port()}"' for _ in range(count))
        path = self.project / "trainerd.toml"
        path.write_text(
            f'entry = "{module}:{entry}"\nlogdir = "run"\n{more}\n[cluster]\nworkers = [{ports}]\nheartbeat_secs = 5\n'
            f"step_secs = 60\n{keys}"
        )
        return path

    def start(self, count: int, *arguments: str, logdir: str = "run") -> list[Trainer]:
        """Start all workers."""
        self.workers = [self.start_one(rank, *arguments, logdir=logdir) for rank in range(count)]
        return self.workers

    def start_one(self, rank: int, *arguments: str, logdir: str = "run") -> Trainer:
        """Start one of them."""
        run = RunDirectory(self.project / logdir)
        rundir = run.worker(rank) if rank else run
        return self.begin("run", "--rank", str(rank), "--logdir", logdir, *arguments, rundir=rundir.path)

    def until_training(self, step: int = 1) -> None:
        """Wait until the chief has trained up to a step."""
        self.workers[0].until_training(step)

    def end(self, seconds: float = DEADLINE_SECS) -> list[int]:
        """Wait until all have ended; their exit codes."""
        return [worker.end(seconds) for worker in self.workers]

    def values(self, step: int, logdir: str = "run") -> dict[str, str]:
        """The variables of a checkpoint."""
        return variables(RunDirectory(self.project / logdir).prefix(step))

    @property
    def text(self) -> str:
        """What all have printed."""
        return "\n".join(f"-- {rank}\n{worker.text}" for rank, worker in enumerate(self.workers))


MakeCluster = Callable[..., Cluster]


@pytest.fixture
def cluster(start: Start, project: Path) -> Iterator[Cluster]:
    """The workers of one run; what is left of them is killed."""
    yield Cluster(project, start)


def figures(path: Path) -> Any:
    """The figures of each step, from the event files."""
    from trainerd.history.curves import read_curve

    return read_curve(RunDirectory(path), "read")
