"""Operations on the entries of a folder that another user can write to, and that no link of that user redirects.

A path is resolved twice by most programs: once to check it, once to use it. In between, its owner can exchange any
part of it for a link. Here a folder is opened once, and each operation names an entry of the open folder.
The rule for links on the way is the one of systemd's `CHASE_SAFE`: a link of root's or of one's own is followed, and a
link of somebody else's only to a folder of that user. The last part of a path is never followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_ENTRY = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY
_READABLE = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_MOST_LINKS = 40  # as the kernel
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)  # of this file system, or to it
MISSING = (FileNotFoundError, NotADirectoryError)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Open a folder while the block runs, and give its descriptor, for `dir_fd`.

    Raises:
      OSError: it cannot be opened; ELOOP if a link of another user leads to a folder of a third one.
    """
    descriptor = _open(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    descriptor = os.open(folder, _FOLDER)
    with contextlib.suppress(OSError):  # no /proc
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(folder):  # noqa: PTH115  a listing does so for thousands
            return descriptor  # no link is on the way
    os.close(descriptor)
    return _open_by_parts(folder)


def _open_by_parts(folder: Path) -> int:
    """Open a folder part by part, and check the owner of each link on the way."""
    pending = list(reversed(folder.absolute().parts))
    makers, proc = list[int](), _device_of_proc()
    with contextlib.ExitStack() as stack:
        current = -1
        while pending:
            part = pending.pop()
            entry = os.open(part, _FOLDER if part == "/" else _ENTRY, dir_fd=None if part == "/" else current)
            stack.callback(os.close, entry)
            found = os.fstat(entry)
            if stat.S_ISLNK(found.st_mode) and found.st_dev == proc:  # it leads to an object, whatever its text says
                entry = os.open(part, _FOLDER, dir_fd=current)
                stack.callback(os.close, entry)
            elif stat.S_ISLNK(found.st_mode):
                makers.append(found.st_uid)
                if len(makers) > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
                pending.extend(reversed(Path(os.readlink("", dir_fd=entry)).parts))
                continue
            current = entry
        owner = os.fstat(current).st_uid
        if strangers := sorted(set(makers) - {0, os.geteuid(), owner}):
            raise OSError(
                errno.ELOOP,
                f"a symbolic link that uid {strangers[0]} has made leads to a folder of uid {owner}",
                str(folder),
            )
        return os.open(".", _FOLDER, dir_fd=current)


def _device_of_proc() -> int:
    """Return the device number of /proc, whose links such as /proc/1/root lead out of what their text names."""
    with contextlib.suppress(OSError):
        return os.stat("/proc").st_dev  # noqa: PTH116  no Path is needed
    return -1


def lstat(path: Path) -> os.stat_result | None:
    """Return what an entry is, without following it if it is a link; None if there is none.

    Raises:
      OSError: its folder cannot be opened or read.
    """
    try:
        with opened(path.parent) as folder:
            return os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except MISSING:
        return None


def size(path: Path) -> int:
    """Return the size of an entry in bytes.

    Raises:
      OSError: it is not there, or cannot be read.
    """
    with opened(path.parent) as folder:
        return os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_size


def exists(path: Path) -> bool:
    """Return whether there is an entry of this name: a file, a folder, a link or another."""
    return lstat(path) is not None


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder. A link to one is not."""
    return (found := lstat(path)) is not None and stat.S_ISDIR(found.st_mode)


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file. A link to one is not."""
    return (found := lstat(path)) is not None and stat.S_ISREG(found.st_mode)


def followed(path: Path) -> Path:
    """Return the path that a link leads to, and that of anything else as it is.

    A link that neither root nor this user has made is not followed.

    Raises:
      OSError: a folder on the way cannot be opened; ELOOP if there are too many links.
    """
    for _ in range(_MOST_LINKS):
        try:
            with opened(path.parent) as folder:
                found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISLNK(found.st_mode) or found.st_uid not in (0, os.geteuid()):
                    return path
                path = path.parent / os.readlink(path.name, dir_fd=folder)
        except MISSING:
            return path
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def require_no_link(folder: Path) -> None:
    """Require that a folder is not a link, which may lead to a folder of another run.

    Raises:
      OSError: it is one.
    """
    if (found := lstat(folder)) is not None and stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "it is a link to another folder", str(folder))


def names(folder: Path) -> list[str]:
    """Return the names of a folder's entries, sorted; none if there is no folder.

    Raises:
      OSError: it cannot be read.
    """
    try:
        with opened(folder) as descriptor:
            readable = os.open(".", _READABLE, dir_fd=descriptor)
            try:
                return sorted(os.listdir(readable))
            finally:
                os.close(readable)
    except MISSING:
        return []


def starting_with(folder: Path, start: str) -> list[Path]:
    """Return the entries of a folder whose names start so, sorted; see `names`."""
    return [folder / name for name in names(folder) if name.startswith(start)]


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Make a folder in a folder that exists.

    Raises:
      OSError: it cannot be made; EEXIST if another entry has its name, or a folder if that is not `exist_ok`.
    """
    with opened(path.parent) as folder:
        try:
            os.mkdir(path.name, dir_fd=folder)
        except FileExistsError:
            if not (exist_ok and stat.S_ISDIR(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode)):
                raise


def set_mode(folder: Path, mode: int) -> None:
    """Set who may use a folder.

    Raises:
      OSError: it cannot be set; ELOOP for a link.
    """
    with opened(folder.parent) as parent:
        descriptor = os.open(folder.name, _READABLE | os.O_NOFOLLOW, dir_fd=parent)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)


def remove(path: Path, *, missing_ok: bool = False) -> None:
    """Remove a file or a link.

    Raises:
      OSError: it cannot be removed, or is not there and that is not `missing_ok`.
    """
    with contextlib.suppress(*MISSING if missing_ok else ()), opened(path.parent) as folder:
        os.unlink(path.name, dir_fd=folder)


def remove_folder(path: Path) -> None:
    """Remove an empty folder.

    Raises:
      OSError: it cannot be removed, or is not empty.
    """
    with opened(path.parent) as folder:
        os.rmdir(path.name, dir_fd=folder)


def remove_tree(path: Path) -> None:
    """Remove a folder and all that is in it. A link to a folder is removed itself.

    Raises:
      OSError: it cannot be removed, or is not there.
    """
    with opened(path.parent) as folder:
        if stat.S_ISDIR(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(path.name, dir_fd=folder)
        else:
            os.unlink(path.name, dir_fd=folder)


def rename(source: Path, target: Path) -> None:
    """Give an entry another name, in place of what has that name.

    Raises:
      OSError: it cannot be renamed.
    """
    with opened(source.parent) as here, opened(target.parent) as there:
        os.rename(source.name, target.name, src_dir_fd=here, dst_dir_fd=there)


def link(source: Path, target: Path) -> bool:
    """Give a file a second name. A link is not followed. Returns False where the file system has no second names.

    Raises:
      OSError: it cannot be given; FileExistsError if the name is not free.
    """
    try:
        with opened(source.parent) as here, opened(target.parent) as there:
            os.link(source.name, target.name, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True
