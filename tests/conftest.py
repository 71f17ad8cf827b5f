"""What all tests share."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.process.trainers import Forkserver, Trainer
from trainerd.system.resources import memory_folders

Fork = Callable[..., Trainer]


@pytest.fixture(autouse=True, scope="session")
def runs_are_remembered_elsewhere() -> Iterator[None]:
    """The runs of tests are none of whoever runs them."""
    with tempfile.TemporaryDirectory(prefix="trainerd-tests-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        yield
        del os.environ["XDG_STATE_HOME"]


@pytest.fixture(autouse=True, scope="session")
def nothing_is_saved_to_memory() -> Iterator[None]:
    """Tests that kill a process check the disk. Those of the memory tier turn the tier on."""
    os.environ[memory_folders.VARIABLE] = ""
    yield
    del os.environ[memory_folders.VARIABLE]


@pytest.fixture(autouse=True, scope="module")
def garbage_is_looked_for_among_what_is_new() -> Iterator[None]:
    """What outlives a module's tests, graphs of TensorFlow above all, is left out of later garbage collections.

    They look through everything there is: after a thousand tests one of them took ten seconds.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def forkserver() -> Iterator[Forkserver]:
    """Makes trainers without importing TensorFlow each time."""
    server = Forkserver()
    yield server
    server.close()


@pytest.fixture
def fork(forkserver: Forkserver) -> Iterator[Fork]:
    """Start a `trainerd` command or a program, as `Forkserver.start` does; kill it at the end of the test."""
    trainers: list[Trainer] = []

    def go(folder: Path, rundir: Path | None = None, **request: Any) -> Trainer:
        trainers.append(forkserver.start(folder, rundir, **request))
        return trainers[-1]

    yield go
    for trainer in trainers:
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            os.killpg(trainer.pid, signal.SIGKILL)
