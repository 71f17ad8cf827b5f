"""Stores in memory, sound and faulty, and copies of runs in them."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fake import FakeSnapshot
from tests.unit.test_rollback import steps_of
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.fingerprint import SOURCE
from trainerd.copies.contents import JobFiles
from trainerd.copies.copier import CopiedRun, Copier
from trainerd.copies.fetch import FetchedRun, fetch
from trainerd.copies.layout import CopyWriter, RunCopy, record_of
from trainerd.copies.process import copy_once
from trainerd.copies.status import CopyStatus, read_copy_status
from trainerd.copies.store import MissingError
from trainerd.errors import CopyError, DataError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state

HERE, THERE = CopyWriter("here", "1", "/runs/a"), CopyWriter("there", "2", "/runs/a")


class MemoryStore:
    """A destination in memory.

    Args:
      contents: what is there.
      on_put: called with each name before it is written.
    """

    def __init__(
        self, contents: dict[str, bytes] | None = None, on_put: Callable[[str], None] = lambda name: None
    ) -> None:
        self.contents = {} if contents is None else contents
        self.on_put = on_put
        self.puts: list[str] = []

    def put(self, name: str, source: int, size: int, moved: Callable[[int], None]) -> bool:
        self.on_put(name)
        self.puts.append(name)
        self.contents[name] = os.pread(source, size, 0)
        moved(size)
        return False

    def read(self, name: str) -> Iterator[bytes]:
        if name not in self.contents:
            raise MissingError(f"there is no {name}.")
        yield self.contents[name]

    def sizes(self, folder: str) -> dict[str, int]:
        start = f"{folder}/"
        return {name.removeprefix(start): len(self.contents[name]) for name in self.contents if name.startswith(start)}

    def delete(self, name: str) -> None:
        self.contents.pop(name, None)

    def close(self) -> None:
        pass


class Killed(BaseException):
    """The copier is killed."""


class FaultyStore(MemoryStore):
    """A destination that fails at random.

    Args:
      contents: what is there.
      chance: decides.
      rate: how often.
    """

    def __init__(self, contents: dict[str, bytes], chance: random.Random, rate: float) -> None:
        super().__init__(contents)
        self._chance, self._rate = chance, rate
        self._full = 0  # so many writes fail

    def _fault(self, *kinds: str) -> str:
        return self._chance.choice(kinds) if self._chance.random() < self._rate else ""

    def _damaged(self, content: bytes) -> bytes:
        at = self._chance.randrange(len(content)) if content else 0
        if self._chance.random() < 0.5:
            return content[:at]
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] if content else b"x"

    def put(self, name: str, source: int, size: int, moved: Callable[[int], None]) -> bool:
        content = os.pread(source, size, 0)
        fault = self._fault("error", "late error", "damage", "damage and error", "full", "kill", "kill after")
        self._full = 5 if fault == "full" else max(0, self._full - 1)
        if self._full or fault == "error":
            raise CopyError("503 Slow Down, or the bucket is full.")
        if fault == "kill":
            raise Killed
        self.contents[name] = self._damaged(content) if "damage" in fault else content
        if fault == "kill after":
            raise Killed
        if "error" in fault:
            raise CopyError("the connection timed out.")
        moved(size)
        return False

    def read(self, name: str) -> Iterator[bytes]:
        fault = self._fault("error", "damage", "cut", "missing", "kill")
        if fault == "kill":
            raise Killed
        if fault == "error":
            raise CopyError("the connection was reset.")
        if fault == "missing":
            raise MissingError(f"there is no {name}.")
        for part in super().read(name):
            yield self._damaged(part) if fault == "damage" else part[: len(part) // 2] if fault == "cut" else part

    def sizes(self, folder: str) -> dict[str, int]:
        fault = self._fault("error", "late", "kill")
        if fault == "kill":
            raise Killed
        if fault == "error":
            raise CopyError("the request timed out.")
        found = super().sizes(folder)
        return {name: size for name, size in found.items() if fault != "late" or self._chance.random() < 0.5}

    def delete(self, name: str) -> None:
        fault = self._fault("error", "late error", "kill")
        if fault == "kill":
            raise Killed
        if fault == "error":
            raise CopyError("403.")
        super().delete(name)
        if fault == "late error":
            raise CopyError("the connection timed out.")


def identified(rundir: RunDirectory, run_id: str = "r1") -> None:
    State(Phase.TRAINING, run_id=run_id, name="digits", step=30).write(rundir.state)


def run_of(rundir: RunDirectory, *, keep: int = 5, writer: CopyWriter = HERE, job: JobFiles | None = None) -> CopiedRun:
    return CopiedRun(rundir, job, Policy(keep), writer)


def copied(rundir: RunDirectory, store: MemoryStore, *, keep: int = 5, writer: CopyWriter = HERE) -> Copier:
    return copy_once(run_of(rundir, keep=keep, writer=writer), RunCopy(store, "memory"))


def fetched(store: MemoryStore, folder: Path, where: str | None = None) -> FetchedRun:
    return fetch(RunCopy(store, "memory"), folder, where, lambda said: None)


def contents_of(rundir: RunDirectory) -> dict[str, bytes]:
    names = {"lock", "copy.json", ".copying", "state.json", "checkpoint"}
    return {path.name: path.read_bytes() for path in rundir.path.iterdir() if path.name not in names}


def about_job(folder: Path, rundir: RunDirectory, *names: str) -> JobFiles:
    """Return the files of a job of these source files; a checkpoint of it is written."""
    source = "; ".join(f"{name} 0123456789abcdef" for name in names)
    CheckpointStore(rundir).publish(FakeSnapshot(10, 1.0), About("schedule", fingerprint={SOURCE: source}))
    return JobFiles(folder, 'entry = "job:job"\n', "run")


def require_no_false_claim(rundir: RunDirectory, contents: dict[str, bytes], steps: list[int]) -> None:
    for step in steps:
        assert contents[f"checkpoints/model.ckpt-{step}.json"] == rundir.manifest(step).read_bytes()
        for record in manifests.read(rundir.manifest(step)).files.values():
            assert record_of(contents[f"objects/{record.xxh128}"]) == record


def copy_with_faults(rundir: RunDirectory, folder: Path, seed: int) -> int:
    """Copy a run to a destination that fails at random, by copiers that are killed. Nothing false is said of it.

    Returns:
      How many tries ended with an error or a kill.
    """
    chance, contents, failed = random.Random(seed), dict[str, bytes](), 0
    rate = chance.choice([0.01, 0.03, 0.1])
    run = run_of(rundir, keep=chance.choice([1, 2, 5]))
    rundir.copy.unlink(missing_ok=True)
    for attempt in range(5):
        copier = Copier(run)
        try:
            copier.open(RunCopy(FaultyStore(contents, chance, rate), "faulty"), read_state(rundir.state))
            while copier.check():
                require_no_false_claim(rundir, contents, copier.status.steps)
        except (CopyError, Killed):
            failed += 1
        status = read_copy_status(rundir) or CopyStatus()
        require_no_false_claim(rundir, contents, status.steps)
        if attempt == 2:
            require_whole(rundir, MemoryStore(dict(contents)), folder, status.steps)
    calm = copy_once(run, RunCopy(MemoryStore(contents), "calm"))
    require_no_false_claim(rundir, contents, calm.status.steps)
    assert max(calm.status.steps) == max(steps_of(rundir)), "once the destination is well again, the copy is complete"
    return failed


def require_whole(rundir: RunDirectory, store: MemoryStore, folder: Path, steps: list[int]) -> None:
    """Require that what is said to be copied comes back, and that all that comes back is whole."""
    try:
        found = fetched(store, folder)
    except DataError:
        assert steps == []
        return
    assert set(steps) <= {*found.steps}
    for step in found.steps:
        for name in manifests.read(rundir.manifest(step)).files:
            assert (found.rundir.path / name).read_bytes() == (rundir.path / name).read_bytes()
    shutil.rmtree(folder)
