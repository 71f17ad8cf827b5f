"""Fixtures of the process tests: real processes, real signals, real files."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Fork
from tests.process.trainers import Trainer
from trainerd.system.resources import memory_folders

Start = Callable[..., Trainer]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the jobs of these tests."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("jobs.py"), folder)
    return folder


@pytest.fixture
def programs(project: Path) -> Path:
    """The same folder, with the programs of `estimators.py` too."""
    shutil.copy(Path(__file__).with_name("estimators.py"), project)
    return project


def write_config(project: Path, entry: str = "jobs:counter", logdir: str = "run", more: str = "") -> Path:
    """Write a trainerd.toml."""
    path = project / "trainerd.toml"
    path.write_text(f'entry = "{entry}"\nlogdir = "{logdir}"\n{more}', encoding="utf-8")
    return path


@pytest.fixture
def start(fork: Fork, project: Path) -> Start:
    """Start a `trainerd` command in the project's folder."""
    return lambda *arguments, rundir=None: fork(project, rundir, run=arguments)


@pytest.fixture
def memory() -> Iterator[dict[str, str]]:
    """The environment of a process that saves to memory, in a folder of this test."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="trainerd-test-") as folder:
        yield {memory_folders.VARIABLE: folder}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MiB. Needs root: in CI its absence is a failure, elsewhere the test is left out."""
    if os.geteuid() != 0 and not os.environ.get("CI"):
        pytest.skip("needs root to mount a tmpfs")
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(path)], check=True)
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)
