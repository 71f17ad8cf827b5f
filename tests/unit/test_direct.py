"""Writing past the page cache, and where that is not to be had."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
from pathlib import Path

import pytest

from trainerd.checkpoints.format.direct_io import BLOCK, IN_PLACE, DirectFile, address


@pytest.mark.parametrize("folder", ["/dev/shm", ""], ids=["in memory", "on the disk"])
@pytest.mark.parametrize(
    "sizes", [[], [1], [4096], [IN_PLACE], [IN_PLACE + 1], [3 * IN_PLACE, 5], [7, IN_PLACE - 7, 4095, 2 * IN_PLACE]]
)
def test_what_is_written_is_there(tmp_path: Path, folder: str, sizes: list[int]) -> None:
    path = Path(folder or tmp_path) / f"trainerd-test-{os.getpid()}"
    pieces = [random.Random(size).randbytes(size) for size in sizes]
    try:
        with DirectFile(path) as file:
            for piece in pieces:
                file.write(memoryview(piece))
            file.finish()
            assert file.size == sum(sizes)
        assert path.read_bytes() == b"".join(pieces)
    finally:
        path.unlink(missing_ok=True)


def test_it_makes_a_new_file_or_none(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("keep")
    with pytest.raises(FileExistsError):
        DirectFile(tmp_path / "there")
    assert (tmp_path / "there").read_text() == "keep"


@pytest.mark.parametrize("how", ["refused at once", "refused at the first write"])
def test_where_direct_writes_are_refused_it_is_written_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    opened, wrote = os.open, os.writev

    def open_(path: Path, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT and how == "refused at once":
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, *rest)

    def write(descriptor: int, parts: list[memoryview]) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return wrote(descriptor, parts)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "writev", write)
    content = random.Random(1).randbytes(2 * IN_PLACE + 100)
    with DirectFile(tmp_path / "a") as file:
        file.write(memoryview(content))
        file.finish()
    assert (tmp_path / "a").read_bytes() == content


def test_a_disk_that_takes_a_part_is_given_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = os.writev

    def write(descriptor: int, parts: list[memoryview]) -> int:
        return wrote(descriptor, [parts[0][: max(1, len(parts[0]) // 3)]])

    monkeypatch.setattr(os, "writev", write)
    content = random.Random(1).randbytes(IN_PLACE + 100)
    with DirectFile(tmp_path / "a") as file:
        file.write(memoryview(content))
        file.finish()
    assert (tmp_path / "a").read_bytes() == content


def test_errors_of_the_disk_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, parts: list[memoryview]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", fail)
    with pytest.raises(OSError, match="No space"), DirectFile(tmp_path / "a") as file:
        file.write(memoryview(bytes(IN_PLACE)))
        file.finish()  # memory that happens to lie right is written no earlier


@pytest.mark.parametrize("folder", ["/dev/shm", ""], ids=["in memory", "on the disk"])
@pytest.mark.parametrize("place", [0, 1, 64, 4095])
@pytest.mark.parametrize("size", [IN_PLACE, IN_PLACE + 1, IN_PLACE + 4095, 3 * IN_PLACE + 64])
def test_what_lies_right_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, place: int, size: int
) -> None:
    """After a gap of the right size: a disk takes whole blocks, from addresses that are multiples of a block."""
    memory = mmap.mmap(-1, 4 * IN_PLACE)
    memory[:] = random.Random(size).randbytes(len(memory))
    content = memoryview(memory)[place : place + size]
    taken, wrote = list[int](), os.writev

    def write(descriptor: int, parts: list[memoryview]) -> int:
        inside = [address(content) <= address(part) < address(content) + len(content) for part in parts]
        taken.extend(len(part) for part, is_inside in zip(parts, inside, strict=True) if is_inside)
        written = wrote(descriptor, parts)
        assert written == sum(map(len, parts))
        return written

    monkeypatch.setattr(os, "writev", write)
    path = Path(folder or tmp_path) / f"trainerd-test-{os.getpid()}"
    try:
        with DirectFile(path) as file:
            file.write(memoryview(b"before"))
            file.write(memoryview(bytes((address(content) - file.size) % BLOCK)))
            offset = file.size
            file.write(content)
            file.write(memoryview(b"behind"))
            file.finish()
        assert offset % BLOCK == place
        assert path.read_bytes()[offset:] == bytes(content) + b"behind"
        assert len(content) - sum(taken) < 2 * BLOCK, "less than a block at either end is copied"
    finally:
        path.unlink(missing_ok=True)
