"""What the tests of copies share."""

from __future__ import annotations

import os

import psutil
import pytest

from tests.unit.copies.stores import (
    MemoryStore,
    copied,
    identified,
)
from tests.unit.test_rollback import write
from trainerd.rundir.paths import RunDirectory


@pytest.fixture(autouse=True)
def tests_keep_their_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process cannot raise its priority again."""
    monkeypatch.setattr(os, "nice", lambda increment: 0)
    monkeypatch.setattr(psutil.Process, "ionice", lambda self, ioclass: None)


@pytest.fixture
def store(rundir: RunDirectory) -> MemoryStore:
    """The copy of a run with three checkpoints."""
    for step in (10, 20, 30):
        write(rundir, step, value=float(step))
    identified(rundir)
    store = MemoryStore()
    copied(rundir, store)
    return store


@pytest.fixture(scope="module")
def copied_rundir(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run directory with some checkpoints and events."""
    rundir = RunDirectory(tmp_path_factory.mktemp("run"))
    for step in (10, 20, 30, 40):
        write(rundir, step, value=float(step))
    identified(rundir)
    (rundir.path / "events.out.tfevents.1.x").write_bytes(os.urandom(100_000))
    return rundir
