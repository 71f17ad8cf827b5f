"""Damage to files, hostile files, and a reader that looks on: never a wrong value, never step 0, nothing outside."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake import FakeSession, FakeSnapshot
from tests.process.conftest import Start, write_config
from tests.process.trainers import saved
from tests.torture.conftest import Tell, amount
from tests.unit.test_planted import READ, WRITTEN
from trainerd.checkpoints import catalogue, latest, manifest
from trainerd.checkpoints.manifest import About, DamagedError
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli import main
from trainerd.errors import DataError, StorageError
from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state
from trainerd.text import printable

pytestmark = pytest.mark.long

STEPS = (10, 20, 30, 40)


def value_of(step: int) -> float:
    return step * 1.000001


def make(folder: Path) -> RunDirectory:
    rundir = RunDirectory(folder)
    rundir.create()
    store = CheckpointStore(rundir, policy=Policy(100))
    for step in STEPS:
        store.publish(FakeSnapshot(step, value_of(step)), About("test"))
    rundir.state.write_text('{"phase": "training", "step": 40}')
    return rundir


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def swap(path: Path, chance: random.Random) -> None:
    """Exchange it with another checkpoint's."""
    others = [other for other in path.parent.glob(f"*{path.suffix}") if other != path and other.is_file()]
    if others:
        other = chance.choice(sorted(others))
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)


def zero(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    begin = chance.randrange(len(content))
    content[begin:] = bytes(len(content) - begin)
    path.write_bytes(content)


def delete(path: Path, chance: random.Random) -> None:
    path.unlink()


KINDS: list[Callable[[Path, random.Random], None]] = [flip, truncate, swap, zero, delete]


def test_damage_leads_to_an_older_checkpoint_or_to_an_error(tmp_path: Path, record_property: Tell) -> None:
    """Damage of random kinds to random files, one to four at a time."""
    pristine = make(tmp_path / "pristine")
    names = sorted(path.name for path in pristine.path.iterdir())
    newest = [name for name in names if "40" in name or "ckpt" not in name]
    count, refused, older = amount(100, 2000), 0, 0
    for seed in range(count):
        chance = random.Random(seed)
        rundir = RunDirectory(tmp_path / "damaged")
        shutil.copytree(pristine.path, rundir.path)
        for _ in range(chance.randint(1, 4)):
            path = rundir.path / chance.choice(newest if chance.random() < 0.5 else names)
            if path.exists() and path.stat().st_size:
                chance.choice(KINDS)(path, chance)
        read_state(rundir.state)
        try:
            store = CheckpointStore(rundir)
            store.clean()
            found = latest.newest_verified(rundir, store)
        except DataError:
            refused += 1
        else:
            assert found is not None, f"seed {seed}: it would start at step 0"
            session = FakeSession()
            session.restore(rundir.prefix(found.step))
            assert (session.step, session.value) == (found.step, value_of(found.step)), f"seed {seed}"
            older += found.step != STEPS[-1]
        shutil.rmtree(rundir.path)
    record_property("damaged run directories", count)
    record_property("of them resumed from an older checkpoint", older)
    record_property("of them refused with 65", refused)


def test_a_reader_never_sees_half_a_checkpoint(start: Start, project: Path, record_property: Tell) -> None:
    """It looks a hundred times a second while a daemon saves as often as it can."""
    write_config(project, entry="jobs:exact", more="[checkpoint]\nsave_model_secs = 0.01\nkeep_last = 2\n")
    run = start("run")
    run.until(lambda state: state.last_checkpoint is not None, "a checkpoint")
    looks, steps = 0, set()
    deadline = time.monotonic() + amount(4, 600)
    while time.monotonic() < deadline:
        begun = time.monotonic()
        found = _look(run.rundir)
        looks += 1
        steps.add(found)
        time.sleep(max(0.0, 0.01 - (time.monotonic() - begun)))
    assert run.pause() == 0
    assert len(steps) > 20, "it hardly ever saved"
    record_property("looks", looks)
    record_property("checkpoints seen", len(steps))


def _look(rundir: RunDirectory) -> int:
    """The newest checkpoint, verified. One that is deleted while it is read is not half: there is a newer one."""
    while True:
        found = catalogue.newest(rundir)
        assert found is not None, "there was one before"
        try:
            manifest.verify(found, rundir.path)
        except DamagedError:
            assert not rundir.manifest(found.step).exists(), "half a checkpoint"
            continue
        assert read_state(rundir.state) is not None
        return found.step


# ---------------------------------------------------------------------- hostile files


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """End what hangs."""

    def end(number: int, frame: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fifo_for_a_manifest(rundir: RunDirectory, outside: Path) -> None:
    os.mkfifo(rundir.manifest(50))


def fifo_for_the_state_file(rundir: RunDirectory, outside: Path) -> None:
    rundir.checkpoint_state.unlink()
    os.mkfifo(rundir.checkpoint_state)


def folder_for_the_state_file(rundir: RunDirectory, outside: Path) -> None:
    rundir.checkpoint_state.unlink()
    rundir.checkpoint_state.mkdir()


def state_file_that_leads_out(rundir: RunDirectory, outside: Path) -> None:
    rundir.checkpoint_state.write_text(f'model_checkpoint_path: "../{outside.name}/model.ckpt-99"\n')


def data_that_leads_out(rundir: RunDirectory, outside: Path) -> None:
    data = rundir.path / "model.ckpt-40.data-00000-of-00001"
    data.unlink()
    data.symlink_to(outside / "precious")


def staging_that_leads_out(rundir: RunDirectory, outside: Path) -> None:
    rundir.staging(41).symlink_to(outside)
    rundir.staging(42).mkdir()
    (rundir.staging(42) / "model.ckpt-42.json").symlink_to(outside / "precious")


def manifest_that_leads_out(rundir: RunDirectory, outside: Path) -> None:
    rundir.manifest(50).symlink_to(outside / "precious")
    rundir.deletion(51).symlink_to(outside / "precious")


def folder_for_a_manifest(rundir: RunDirectory, outside: Path) -> None:
    rundir.manifest(50).mkdir()
    rundir.deletion(51).mkdir()


def quarantine_that_is_a_file(rundir: RunDirectory, outside: Path) -> None:
    rundir.quarantine.symlink_to(outside / "precious")
    flip(rundir.path / "model.ckpt-40.index", random.Random(1))


def quarantine_that_leads_out(rundir: RunDirectory, outside: Path) -> None:
    rundir.quarantine.symlink_to(outside)
    flip(rundir.path / "model.ckpt-40.index", random.Random(1))


def ten_thousand_entries(rundir: RunDirectory, outside: Path) -> None:
    for number in range(10_000):
        (rundir.path / f"model.ckpt-{number}.notes").touch()


def names_that_are_no_steps(rundir: RunDirectory, outside: Path) -> None:
    for name in ("model.ckpt-07.json", "model.ckpt-\u0664\u0662.json", ".deleting-05.json", "model.ckpt-060.pin"):
        (rundir.path / name).touch()
    (rundir.path / ".replacing-060").mkdir()
    rundir.aside(41).symlink_to(outside)


HOSTILE = [
    names_that_are_no_steps,
    fifo_for_a_manifest,
    fifo_for_the_state_file,
    folder_for_the_state_file,
    state_file_that_leads_out,
    data_that_leads_out,
    staging_that_leads_out,
    manifest_that_leads_out,
    folder_for_a_manifest,
    quarantine_that_is_a_file,
    quarantine_that_leads_out,
    ten_thousand_entries,
]


@pytest.mark.parametrize("plant", HOSTILE, ids=lambda plant: plant.__name__)
def test_hostile_files_touch_nothing_outside_and_hang_nothing(tmp_path: Path, plant: Callable[..., None]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    (outside / "model.ckpt-99.json").write_text("{}")
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    rundir = make(tmp_path / "run")
    plant(rundir, outside)
    store = CheckpointStore(rundir, policy=Policy(1))
    with within(20), contextlib.suppress(DataError, StorageError):
        store.clean()
        found = latest.newest_verified(rundir, store)
        assert found is not None
        session = FakeSession()
        session.restore(rundir.prefix(found.step))
        assert session.value == value_of(found.step)
    with within(20):
        store.publish(FakeSnapshot(60, value_of(60)), About("test"))
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert 60 in rundir.steps()


def test_a_run_resumes_among_ten_thousand_entries_and_a_folder_named_checkpoint(start: Start, project: Path) -> None:
    write_config(project, more="max_steps = 10\n")
    assert start("run").end() == 0
    run = RunDirectory(project / "run")
    ten_thousand_entries(run, project)
    folder_for_the_state_file(run, project)
    os.mkfifo(run.pause)
    again = start("run", "--max-steps", "20")
    assert again.end() in (0, 74), again.text
    assert saved(run)[0] >= 10


COMMANDS = (["status"], ["status", "--json"], ["logs"], ["pin", "30"], ["unpin", "30"], ["pause"], ["save"])


def test_planted_files_are_neither_followed_nor_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record_property: Tell, as_root: None
) -> None:
    """What a job may leave in its run directory for root to type a command at."""
    tries, chance = amount(20, 1000), random.Random(7)
    read = ["state.json", "trainerd.log", "checkpoint", "model.ckpt-40.json"]
    written = ["pause", "save", "model.ckpt-30.pin"]
    for number in range(tries):
        rundir = make(tmp_path / str(number) / "run")
        (rundir.path.parent / "precious").write_text("of another")
        rundir.log.write_text("\x1b]0;a line\x07\n")
        os.chown(rundir.path, 12345, 12345)
        with lock.acquire(rundir) as held:
            held.name_holder(os.getpid())
            for name in chance.sample([*read, *written], chance.randint(1, 3)):
                (rundir.path / name).unlink(missing_ok=True)
                chance.choice(READ if name in read else WRITTEN)(rundir.path / name)
            for command in COMMANDS:
                begun = time.monotonic()
                with pytest.raises(SystemExit) as ended:
                    main([*command, "--logdir", str(rundir.path)])
                printed = "".join(capsys.readouterr())
                assert ended.value.code in (0, 64, 69, 74) and "Traceback" not in printed
                assert time.monotonic() - begun < 2 and printable(printed) == printed and "of another" not in printed
        assert (rundir.path.parent / "precious").read_text() == "of another"
        assert not (rundir.path.parent / "nologin").exists()
    record_property("run directories with planted files", tries)
