"""Files that are replaced as a whole, and what the kernel tells of the disk below a run directory."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from trainerd.errors import StorageError
from trainerd.system import durable_files
from trainerd.system.resources import mounts


def test_the_disk_of_a_file_system_with_a_number_of_its_own_is_the_one_that_is_mounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Btrfs: what other disks do must not pass for progress of an fsync that hangs."""
    memory = Path("/dev/shm")
    assert os.major(memory.stat().st_dev) == 0

    def mount(*named: tuple[str, str]) -> None:
        found = [
            SimpleNamespace(device=device, mountpoint=mountpoint, fstype="", opts="") for device, mountpoint in named
        ]
        monkeypatch.setattr(psutil, "disk_partitions", lambda all: found)

    null, of_null, of_all_disks, read_text = Path("/dev/null").stat().st_rdev, 42, 7, Path.read_text
    kernel = {
        f"/sys/dev/block/{os.major(null)}:{os.minor(null)}/stat": f"1 2 3 4 5 6 {of_null} 8",
        "/proc/vmstat": f"nr_free_pages 1\nnr_written {of_all_disks}\n",
    }
    monkeypatch.setattr(Path, "read_text", lambda path: kernel[str(path)] if str(path) in kernel else read_text(path))
    mount(("/dev/zero", "/"), ("/dev/null", "/dev/shm"), ("/dev/zero", "/dev/sh"))
    assert mounts.written_back(memory) == of_null
    for elsewhere in ("tmpfs", "server:/folder"):
        mount((elsewhere, "/dev/shm"))
        assert mounts.written_back(memory) == of_all_disks
    mount()
    assert mounts.written_back(memory) == of_all_disks


@pytest.mark.parametrize("kind", ["link", "FIFO", "file"])
def test_a_new_file_is_not_written_through_what_has_its_name(tmp_path: Path, kind: str) -> None:
    outside, path = tmp_path / "outside", tmp_path / "new"
    outside.write_text("mine")
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "FIFO":
        os.mkfifo(path)
    else:
        path.touch()
    durable_files.write_durable(path, b"ours")
    assert path.read_bytes() == b"ours" and outside.read_text() == "mine"
    assert path.is_file() and not path.is_symlink()


@pytest.mark.parametrize("durable", [False, True])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    path = tmp_path / "state.json"
    durable_files.write_atomic(path, b"old", durable=durable)

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="Input/output"):
        durable_files.write_atomic(path, b"new", durable=durable)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["state.json"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_a_file_system_that_syncs_no_directories_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with contextlib.nullcontext() if code == errno.EINVAL else pytest.raises(OSError, match="Input/output"):
        durable_files.write_atomic(tmp_path / "state.json", b"ours")
    assert (tmp_path / "state.json").read_bytes() == b"ours"


def test_an_error_advises_what_its_cause_needs(tmp_path: Path) -> None:
    folder = tmp_path / "missing"

    def said(path: Path, doing: str = "") -> str:
        with pytest.raises(StorageError) as caught, durable_files.storage(doing or f"write {path}"):
            path.open()
        return str(caught.value)

    assert said(folder / "file").endswith(f"The directory {folder} does not exist; create it.")
    assert said(tmp_path / "file").endswith("No such file or directory.")
    assert said(tmp_path / "file", f"sync the files in {tmp_path}").endswith("No such file or directory.")
    device = durable_files.storage_error(OSError(errno.EIO, os.strerror(errno.EIO)), "write")
    assert "dmesg" in str(device) and "dmesg" not in said(folder / "file")
    for number in (errno.EACCES, errno.EPERM):
        denied = str(durable_files.storage_error(OSError(number, os.strerror(number)), "write"))
        assert "`chown`" in denied and "dmesg" not in denied
