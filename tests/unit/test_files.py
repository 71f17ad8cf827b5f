"""Files that are replaced as a whole, and what the kernel tells of the disk below a run directory."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from trainerd.system import durable_files


def test_the_disk_of_a_file_system_with_a_number_of_its_own_is_the_one_that_is_mounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Btrfs: what other disks do must not pass for progress of an fsync that hangs."""
    memory = Path("/dev/shm")
    assert os.major(memory.stat().st_dev) == 0

    def mounts(*named: tuple[str, str]) -> None:
        found = [SimpleNamespace(device=device, mountpoint=mountpoint) for device, mountpoint in named]
        monkeypatch.setattr(psutil, "disk_partitions", lambda all: found)

    mounts(("/dev/zero", "/"), ("/dev/null", "/dev/shm"), ("/dev/zero", "/dev/sh"))
    assert durable_files._disk(memory) == Path("/dev/null").stat().st_rdev
    for elsewhere in ("tmpfs", "server:/folder"):
        mounts((elsewhere, "/dev/shm"))
        assert durable_files._disk(memory) == memory.stat().st_dev
    mounts()
    assert durable_files._disk(memory) == memory.stat().st_dev
    assert durable_files.written_back(memory) > 0  # of all disks, then


@pytest.mark.parametrize("durable", [False, True])
def test_nothing_is_written_through_what_has_the_name_of_a_temporary_file(tmp_path: Path, durable: bool) -> None:
    """In a container the process has the same pid each time, and somebody may know it."""
    outside, path = tmp_path / "outside", tmp_path / "run" / "state.json"
    outside.write_text("mine")
    path.parent.mkdir()
    temporary = path.with_name(f".state.json.{os.getpid()}.tmp")
    for kind in ("link", "FIFO", "file"):
        if kind == "link":
            temporary.symlink_to(outside)
        elif kind == "FIFO":
            os.mkfifo(temporary)
        else:
            temporary.touch()
        durable_files.write_atomic(path, b"ours", durable=durable)
        assert path.read_bytes() == b"ours" and outside.read_text() == "mine" and not os.path.lexists(temporary)
        assert path.is_file() and not path.is_symlink()
