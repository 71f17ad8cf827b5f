"""The effects of the kind of file system on a run."""

from __future__ import annotations

from collections.abc import Iterator

from trainerd import text
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well
from trainerd.system.resources.mounts import Mount, holding

_FAT_BYTES = (4 << 30) - 1  # the longest file
_MEMORY = ("tmpfs", "ramfs")
_FAT = ("vfat", "msdos", "exfat")
_HOST = ("9p", "virtiofs", "vboxsf")
_SHARES = ("cifs", "smb3", "smbfs")
_MOVE = "set `logdir` to a folder on a local disk"


def check(facts: Facts) -> Iterator[Finding]:
    """Look up which file system holds the run directory, and judge it."""
    mount = holding(facts.folder.resolve())
    if mount is None:
        yield warning("the kernel does not say which one holds the run directory", "look with `findmnt`.")
        return
    files = facts.newest.files.values() if facts.newest is not None else ()
    yield from judge(mount, max((record.bytes for record in files), default=None))


def judge(mount: Mount, largest: int | None) -> Iterator[Finding]:
    """Yield the findings about a file system's kind and its options.

    Args:
      mount: the file system.
      largest: bytes of the largest file of the newest checkpoint; None if there is none.
    """
    where = f"{mount.kind} at {mount.point}"
    if "ro" in mount.options:
        yield problem(f"{where} is read-only", f"`mount -o remount,rw {mount.point}`, or {_MOVE}.")
    yield _of_kind(mount.kind, where, largest)


def _of_kind(kind: str, where: str, largest: int | None) -> Finding:
    if kind in _MEMORY:
        return problem(f"{where} is in memory: the run is gone at the next reboot", f"{_MOVE}.")
    if kind in _FAT:
        return _fat(kind, where, largest)
    if kind.startswith("nfs"):
        return warning(
            f"{where} is another machine's: whether fsync puts a checkpoint on its disk, and whether a lock holds "
            "between two machines, is that server's matter",
            "export it with `sync` and not `async`, mount it with `hard` and `local_lock=none`, and never start the "
            "run on two machines.",
        )
    if kind in _SHARES:
        return warning(
            f"{where} is another machine's share: locks, and whether fsync is honest, are that server's matter",
            f"{_MOVE}; or use NFS.",
        )
    if kind == "fuse" or kind.startswith("fuse."):
        return warning(f"{where} is a program's: it alone decides what fsync, rename and locks do", f"{_MOVE}.")
    if kind == "overlay":
        return warning(
            f"{where} is a layer over others, as in a container: what is written there goes with the container",
            "mount a volume, and set `logdir` to a folder in it.",
        )
    if kind in _HOST:
        return warning(
            f"{where} is a folder of this virtual machine's host: fsync is as honest as the host makes it",
            f"{_MOVE} of this machine, or see that the host's share is not cached (`cache=none`).",
        )
    return well(where)


def _fat(kind: str, where: str, largest: int | None) -> Finding:
    largest_file = f"; the largest of the newest checkpoint has {text.size(largest)}" if largest is not None else ""
    limit = "" if kind == "exfat" else f" No file of it may be longer than {text.size(_FAT_BYTES)}{largest_file}."
    return warning(
        f"{where} has no journal, no permissions and no links: a power cut may damage all of it.{limit}",
        f"{_MOVE} with a file system of Linux, such as ext4 or xfs.",
    )
