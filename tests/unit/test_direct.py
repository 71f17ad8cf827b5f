"""Writing past the page cache, and where that is not to be had."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
import xxhash

from trainerd.checkpoints.direct import CHUNK, DirectFile


@pytest.mark.parametrize("folder", ["/dev/shm", ""], ids=["in memory", "on the disk"])
@pytest.mark.parametrize(
    "sizes", [[], [1], [4096], [CHUNK], [CHUNK + 1], [3 * CHUNK, 5], [7, CHUNK - 7, 4095, 2 * CHUNK]]
)
def test_what_is_written_is_there(tmp_path: Path, folder: str, sizes: list[int]) -> None:
    path = Path(folder or tmp_path) / f"trainerd-test-{os.getpid()}"
    pieces = [random.Random(size).randbytes(size) for size in sizes]
    try:
        with DirectFile(path) as file:
            for piece in pieces:
                file.write(memoryview(piece))
            digest = file.finish()
            assert file.size == sum(sizes)
        content = path.read_bytes()
        assert content == b"".join(pieces)
        assert digest == xxhash.xxh3_128_hexdigest(content)
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
    opened, wrote = os.open, os.write

    def open_(path: Path, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT and how == "refused at once":
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, *rest)

    def write(descriptor: int, content: memoryview) -> int:
        import fcntl

        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return wrote(descriptor, content)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "write", write)
    content = random.Random(1).randbytes(2 * CHUNK + 100)
    with DirectFile(tmp_path / "a") as file:
        file.write(memoryview(content))
        assert file.finish() == xxhash.xxh3_128_hexdigest(content)
    assert (tmp_path / "a").read_bytes() == content


def test_a_disk_that_takes_a_part_is_given_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = os.write

    def write(descriptor: int, content: memoryview) -> int:
        return wrote(descriptor, content[: max(1, len(content) // 3)])

    monkeypatch.setattr(os, "write", write)
    content = random.Random(1).randbytes(CHUNK + 100)
    with DirectFile(tmp_path / "a") as file:
        file.write(memoryview(content))
        file.finish()
    assert (tmp_path / "a").read_bytes() == content


def test_errors_of_the_disk_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, content: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(OSError, match="No space"), DirectFile(tmp_path / "a") as file:
        file.write(memoryview(bytes(CHUNK)))
