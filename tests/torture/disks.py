"""Disks that lose power, or fail when the kernel writes to them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
_WITHOUT_FLUSH = 2  # what is not on disk now never gets there: EXT4_GOING_FLAGS_NOLOGFLUSH


def run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


class Disk:
    """An ext4 in a file, mounted at a folder."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image = image
        self.folder = folder
        folder.mkdir()
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", image)
        self.mount()

    def mount(self) -> None:
        """Mount it; its journal is replayed."""
        run("mount", "-o", "loop", self._image, self.folder)

    def unmount(self) -> None:
        """Unmount it, at once."""
        with contextlib.suppress(subprocess.CalledProcessError):
            run("umount", self.folder)

    def cut_power(self) -> None:
        """From now on nothing gets to the disk, and what was not on it is gone."""
        descriptor = os.open(self.folder, os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSH))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def power(folder: Path) -> Iterator[Disk]:
    """A disk whose power can be cut."""
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(128 << 20)
    disk = Disk(image, folder / "disk")
    try:
        yield disk
    finally:
        disk.unmount()


@contextlib.contextmanager
def failing(folder: Path) -> Iterator[Path]:
    """A disk of 200 MB that in truth has about 24: writes pass, and fail when they get to it."""
    below = folder / "below"
    below.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", below)
    try:
        with (below / "image").open("wb") as file:
            file.truncate(200 << 20)
        disk = Disk(below / "image", folder / "disk")
        try:
            yield disk.folder
        finally:
            disk.unmount()
    finally:
        run("umount", "-l", below)


def forget_the_cache() -> None:
    """Have the next reads come from the disks."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")
