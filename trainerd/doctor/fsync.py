"""Checks whether fsync is honest, as far as that can be seen from here."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well
from trainerd.system.resources.mounts import Mount, holding

_TIMES = 5
_BLOCK = b"\0" * 4096
_SPINNING_SECS = 0.0005  # a disk of 15,000 turns a minute needs 2 ms on the average to come round
_DEVICES = Path("/sys/dev/block")


@dataclass(frozen=True)
class Device:
    """The disk below a file system, as the kernel describes it; a text is empty if the kernel says nothing.

    Attributes:
      write_cache: "write back" if the disk keeps writes in a memory of its own, else "write through".
      is_spinning: whether it has platters.
    """

    write_cache: str = ""
    is_spinning: bool = False


def check(facts: Facts) -> Iterator[Finding]:
    """Check the mount, at the disk below it, and at how long an fsync takes."""
    mount = holding(facts.folder.resolve())
    if mount is not None:
        number = facts.folder.stat().st_dev
        device = read_device(f"{os.major(number)}:{os.minor(number)}")
        yield from judge(mount, device, time_fsync(facts.folder))


def judge(mount: Mount, device: Device, seconds: float | None) -> Iterator[Finding]:
    """Yield the finding on whether fsync is honest.

    Args:
      mount: the file system.
      device: the disk below it.
      seconds: how long an fsync of a new block took, at the median; None if that was not tried.
    """
    measured = f"{1000 * seconds:.2g} ms for a block" if seconds is not None else "not timed"
    if off := sorted(mount.options & {"nobarrier", "barrier=0"}):
        yield problem(
            f"{mount.point} is mounted with {off[0]}: a power cut may lose what was announced as saved",
            f"`mount -o remount,barrier {mount.point}`, and take {off[0]} out of /etc/fstab.",
        )
    elif "data=writeback" in mount.options:
        yield warning(
            f"{mount.point} is mounted with data=writeback: after a power cut, files that were not put on disk "
            "yet, such as curves and the log, may hold what was there before. Checkpoints are put on disk",
            "mount it with data=ordered, the default.",
        )
    elif seconds is not None and device.is_spinning and seconds < _SPINNING_SECS:
        yield warning(
            f"{measured}, faster than a spinning disk can be, which the kernel takes {mount.source} for: something in "
            "between, such as a controller or a virtual machine's host, says it is done before it is",
            "see that it has a battery, or turn its cache off.",
        )
    else:
        cache = f". The disk's cache is {device.write_cache.replace(' ', '-')}" if device.write_cache else ""
        unseen = "trainerd cannot see whether the disk keeps what it confirms"
        yield well(f"{measured}{cache}. No mount option turns fsync off. {unseen}")


def read_device(number: str, devices: Path = _DEVICES) -> Device:
    """Return the kernel's description of the disk of this number, such as "8:1"; a partition has its disk's queue.

    The kernel says that virtual disks spin, which is ignored.
    """
    place = devices / number
    queue = next((each for each in (place / "queue", place.resolve().parent / "queue") if each.is_dir()), None)
    if queue is None:
        return Device()
    is_virtual = "virt" in str(queue.resolve())
    return Device(_word(queue / "write_cache"), _word(queue / "rotational") == "1" and not is_virtual)


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def time_fsync(folder: Path, timer: Callable[[], float] = time.monotonic) -> float | None:
    """Return how long an fsync of a new block takes at the median, in seconds. The file has no name at any time.

    Returns:
      None if the file system has no files without a name, or none may be made.
    """
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        return statistics.median(_one(descriptor, timer) for _ in range(_TIMES))
    except OSError:  # the disk is full, which another finding says
        return None
    finally:
        os.close(descriptor)


def _one(descriptor: int, timer: Callable[[], float]) -> float:
    os.write(descriptor, _BLOCK)
    begun = timer()
    os.fsync(descriptor)
    return timer() - begun
