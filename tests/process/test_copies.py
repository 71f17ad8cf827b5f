"""Copies as a process: beside a trainer that is killed, and at servers that others wrote."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.process.conftest import Start, write_config
from tests.process.trainers import saved, variables
from tests.unit.copies.stores import identified, run_of
from tests.unit.test_rollback import value_at, write
from tests.waiting import DEADLINE_SECS, wait_for
from trainerd.checkpoints.manifest import FileRecord
from trainerd.config.destination import Destination
from trainerd.copies.connect import connect
from trainerd.copies.copier import Copier
from trainerd.copies.fetch import fetch
from trainerd.copies.process import copy_once, only_copier
from trainerd.copies.rclone import RcloneStore
from trainerd.copies.status import CopyStatus, read_copy_status
from trainerd.errors import CopyError, DataError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state
from trainerd.system.durable_files import xxh128_of

RCLONE = shutil.which("rclone", path=str(Path(sys.executable).parent)) or "rclone"
KEY, SECRET = "ACCESSKEY123", "SECRETKEY123"


def test_a_wiped_run_comes_back_and_is_the_run_that_was_never_lost(start: Start, project: Path) -> None:
    url = (project / "nas").as_uri()
    write_config(project, "jobs:exact", more=f'[checkpoint]\nsave_model_steps = 20\n[copy]\nto = "{url}"\n')
    run = start("run", "--forever")

    def copied(step: int) -> CopyStatus | None:
        found = read_copy_status(run.rundir)
        return found if found is not None and (found.step or 0) >= step else None

    copier = wait_for(lambda: copied(1), "a copy")
    assert psutil.Process(copier.pid).nice() >= 10
    second = start("copy")
    assert second.end() == 75 and "another process copies" in second.text
    run.until_training((copier.step or 0) + 50)
    os.kill(run.pid, signal.SIGKILL)
    run.end()
    newest = max(saved(run.rundir))
    wait_for(lambda: copied(newest), "the newest copy")
    with only_copier(run.rundir, DEADLINE_SECS):  # it ends after the run
        pass
    shutil.rmtree(run.rundir.path)
    fetched = start("fetch", url, "back")
    assert fetched.end() == 0 and f"resumes the run from step {newest:,}" in fetched.text, fetched.text
    assert (project / "back" / "jobs.py").read_bytes() == (project / "jobs.py").read_bytes()
    end = str(newest + 7)
    back = start("run", "--config", "back/trainerd.toml", "--max-steps", end, rundir=project / "back" / "run")
    assert back.end() == 0 and f"restored step {newest}" in back.text, back.text
    calm = start("run", "--logdir", "calm", "--max-steps", end, rundir=project / "calm")
    assert calm.end() == 0, calm.text
    assert variables(back.rundir.prefix(newest + 7)) == variables(calm.rundir.prefix(newest + 7))


@contextlib.contextmanager
def served(kind: str, folder: Path, *options: str) -> Iterator[int]:
    """Serve a folder with rclone; its port."""
    log = folder.with_name(f"{kind}.log")
    command = [RCLONE, "serve", kind, str(folder), "--addr", "127.0.0.1:0", *options]
    with log.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        found = wait_for(lambda: re.search(r"127\.0\.0\.1:([1-9]\d*)", log.read_text()), lambda: log.read_text())
        yield int(found[1])
    finally:
        server.kill()
        server.wait()


@pytest.fixture(params=["s3", "sftp", "webdav"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of a server that rclone's authors wrote."""
    folder = tmp_path / "served"
    (folder / "bucket").mkdir(parents=True)
    monkeypatch.setenv("RCLONE_CONFIG", str(tmp_path / "rclone.conf"))
    obscured = subprocess.run([RCLONE, "obscure", "secret"], capture_output=True, text=True, check=True).stdout.strip()
    if request.param == "s3":
        with served("s3", folder, "--auth-key", f"{KEY},{SECRET}") as port:
            for name, value in {
                "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "RCLONE_S3_PROVIDER": "Rclone",
                "RCLONE_S3_ENDPOINT": f"http://127.0.0.1:{port}",
            }.items():
                monkeypatch.setenv(name, value)
            yield "s3://bucket/runs/digits"
    elif request.param == "sftp":
        if shutil.which("ssh-keygen") is None and not os.environ.get("CI"):
            pytest.skip("needs ssh-keygen")
        key = tmp_path / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        with served("sftp", folder, "--user", "me", "--pass", "secret", "--key", str(key)) as port:
            public = key.with_suffix(".pub").read_text().split()
            (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
            monkeypatch.setenv("RCLONE_SFTP_KNOWN_HOSTS_FILE", str(tmp_path / "known_hosts"))
            monkeypatch.setenv("RCLONE_SFTP_PASS", obscured)
            yield f"sftp://me@127.0.0.1:{port}/bucket/runs/digits"
    else:
        monkeypatch.setenv("RCLONE_WEBDAV_PASS", obscured)
        with served("webdav", folder, "--user", "me", "--pass", "secret") as port:
            yield f"webdav://me@127.0.0.1:{port}/bucket/runs/digits"


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    """A run directory with two checkpoints."""
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    for step in (10, 20):
        write(rundir, step, value=float(step))
    identified(rundir)
    (rundir.path / "events.out.tfevents.1.x").write_bytes(os.urandom(2_000_000))
    return rundir


def test_a_server_of_others_keeps_a_copy(url: str, rundir: RunDirectory, tmp_path: Path) -> None:
    destination = Destination.parse(url)
    with contextlib.closing(connect(destination)) as copy:
        assert copy_once(run_of(rundir), copy).status.steps == [10, 20]
        write(rundir, 30, value=30.0)
        assert copy_once(run_of(rundir, keep=2), copy).status.steps == [20, 30]
        found = fetch(copy, tmp_path / "back", None, lambda said: None)
    assert found.steps == [20, 30] and value_at(found.rundir, 30) == 30.0
    events = "events.out.tfevents.1.x"
    assert (found.rundir.path / events).read_bytes() == (rundir.path / events).read_bytes()


def test_the_checksum_of_a_server_is_used_if_it_has_one(url: str, tmp_path: Path) -> None:
    """WebDAV has none, so what was sent is read back."""
    destination = Destination.parse(url)
    with contextlib.closing(RcloneStore(destination)) as store, (tmp_path / "file").open("w+b") as file:
        file.write(b"content")
        file.flush()
        has_checksum = store.put("objects/a", file.fileno(), 7, lambda sent: None)
        assert b"".join(store.read("objects/a")) == b"content"
    assert has_checksum == (destination.scheme != "webdav")


@pytest.mark.parametrize("url", ["s3"], indirect=True)
def test_an_upload_to_s3_in_several_parts_is_read_back(url: str, tmp_path: Path) -> None:
    """rclone itself has written the checksum that S3 then has."""
    with contextlib.closing(RcloneStore(Destination.parse(url))) as store, (tmp_path / "file").open("w+b") as file:
        for size, has_checksum in ((10 << 20, True), (200 << 20, False)):
            file.truncate(size)
            assert store.put("objects/a", file.fileno(), size, lambda sent: None) == has_checksum


def test_an_upload_to_a_server_can_be_slow_and_is_stopped(url: str, tmp_path: Path) -> None:
    """The file is deleted meanwhile, and what was opened is sent all the same."""
    events, sent = tmp_path / "events", list[int]()
    events.write_bytes(os.urandom(20_000_000))
    with contextlib.closing(connect(Destination.parse(url), max_mbit=1.0)) as copy, events.open("rb") as file:
        events.unlink()

        def stop(count: int) -> None:
            sent.append(count)
            if count:
                raise CopyError("stopped.")

        record = FileRecord(os.fstat(file.fileno()).st_size, xxh128_of(file.fileno()))
        with pytest.raises(CopyError, match="stopped"):
            copy.put_object(record, file.fileno(), stop)
    assert 0 < sent[-1] < record.bytes


def test_what_is_there_is_replaced_whatever_the_environment_says(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged object of the same size and time is not taken for the file."""
    for option in ("DRY_RUN", "SIZE_ONLY", "IGNORE_EXISTING", "IGNORE_CHECKSUM", "IMMUTABLE", "NO_TRAVERSE"):
        monkeypatch.setenv(f"RCLONE_{option}", "true")
    file, record = tmp_path / "file", FileRecord(5, "of-the-right-file")
    with contextlib.closing(connect(Destination.parse(url))) as copy:
        for content in (b"wrong", b"right"):
            file.write_bytes(content)
            os.utime(file, (1e9, 1e9))
            with file.open("rb") as opened, contextlib.suppress(CopyError):  # its name is not its checksum
                copy.put_object(record, opened.fileno(), lambda sent: None)
        found = b""
        with pytest.raises(DataError):
            for part in copy.read_object(record):
                found += part
    assert found == b"right"


def test_a_server_that_dies_leaves_no_false_copy(rundir: RunDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    with served("webdav", folder) as port:
        copier = Copier(run_of(rundir))
        with contextlib.closing(connect(Destination.parse(f"webdav://127.0.0.1:{port}/run"))) as copy:
            copier.open(copy, read_state(rundir.state))
            assert copier.check() and copier.status.steps == [20]
    write(rundir, 30)
    with (
        contextlib.closing(connect(Destination.parse(f"webdav://127.0.0.1:{port}/run"))) as copy,
        pytest.raises(CopyError, match="connection refused"),
    ):
        copy_once(run_of(rundir), copy)
    status = read_copy_status(rundir)
    assert status is not None and status.steps == [20] and "connection refused" in str(status.error)


def test_rclone_ends_with_a_copier_that_is_killed(rundir: RunDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    with served("webdav", folder) as port:
        url = f"webdav://127.0.0.1:{port}/run"
        command = [sys.executable, "-m", "trainerd", "copy", str(rundir.path), "--to", url]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as copier:
            wait_for(lambda: (read_copy_status(rundir) or CopyStatus()).steps == [10, 20], "the copy")
            children = psutil.Process(copier.pid).children()
            copier.kill()
        assert children
        psutil.wait_procs(children, DEADLINE_SECS)
        assert not any(child.is_running() for child in children)


def test_what_rclone_says_is_passed_on(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RCLONE_CONFIG", str(tmp_path / "rclone.conf"))
    with (
        contextlib.closing(connect(Destination.parse("rclone://nothing/run"))) as copy,
        pytest.raises(CopyError, match=r"cannot read run\.json from rclone://nothing/run: .*didn't find section"),
    ):
        copy_once(run_of(rundir), copy)
