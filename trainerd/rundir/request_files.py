"""Request files. Each is removed when it is served, so that it asks once.

`pause` and `save` are looked for in the folder `requests` too.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage
from trainerd.system.regular_files import open_to_append_for_all, open_to_read
from trainerd.text import printable

log = logging.getLogger(__name__)

BY_FILE = "the file `pause`"
AGENT, WATCHER = "the agent", "the watcher"  # in front of their reasons for a pause
LIMIT = 64 * 1024  # bytes of a request file that are read
_LONGEST_ID = 64  # characters
_LONGEST_REASON = 200  # characters
_GROUP_MAY_ASK = "TRAINERD_GROUP_MAY_ASK"


def open_to_group(rundir: RunDirectory) -> None:
    """Let this process's group request a pause or a save, if the environment says so.

    A unit does, whose `Group=` is that of the watcher.
    """
    if os.environ.get(_GROUP_MAY_ASK) != "1":
        return
    try:
        safe_paths.make_folder(rundir.requests, exist_ok=True)
        safe_paths.set_mode(rundir.requests, 0o770)
    except OSError as error:
        log.warning("the group cannot be given access to %s: %s", rundir.requests, error.strerror)


def is_pause_asked(rundir: RunDirectory) -> bool:
    """Return whether there is a `pause` file."""
    return any(is_asked(path) for path in _places(rundir, rundir.pause))


def who_asks_for_pause(rundir: RunDirectory) -> str | None:
    """Return what the `pause` file says of who asks, or else that it is a file; None if there is no such file."""
    for path in _places(rundir, rundir.pause):
        if not is_asked(path):
            continue
        try:
            with open_to_read(path) as file:
                lines = file.read(LIMIT).decode(errors="replace").splitlines()
        except OSError:  # it is asked for all the same
            lines = []
        said = printable(" ".join(lines[-1].split()))[:_LONGEST_REASON] if lines else ""
        return said or BY_FILE
    return None


def is_save_asked(rundir: RunDirectory) -> bool:
    """Return whether there is a `save` file."""
    return any(is_asked(path) for path in _places(rundir, rundir.save))


def consume_pause(rundir: RunDirectory) -> bool:
    """Remove the `pause` file. Returns whether there was one."""
    consumed = [consume(path) for path in _places(rundir, rundir.pause)]
    return any(consumed)


def _places(rundir: RunDirectory, path: Path) -> tuple[Path, Path]:
    return path, rundir.requests / path.name


def append(path: Path, line: str) -> None:
    """Append a line to a request file, and make it if it is missing.

    Raises:
      StorageError: it cannot be written.
    """
    # The trainer must be able to read it.
    with storage(f"write {path}"), os.fdopen(open_to_append_for_all(path), "ab", buffering=0) as file:
        file.write(line.encode())


def is_asked(path: Path) -> bool:
    """Return whether there is this request file. A folder or a FIFO of its name is the job's own, and no request."""
    try:
        return safe_paths.is_file(path)
    except OSError:
        return False


def consume(path: Path) -> bool:
    """Remove a request file. Returns whether there was one."""
    if not is_asked(path):
        return False
    try:
        safe_paths.remove(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("cannot remove %s: %s. Remove it before the next start.", path, error.strerror)
    return True


def consume_save(rundir: RunDirectory) -> list[str]:
    """Remove the `save` file. Returns the ids in it, one a line, for the answer."""
    lines = [line for path in _places(rundir, rundir.save) for line in consume_lines(path)]
    return [word for line in lines for word in line.split() if len(word) <= _LONGEST_ID]


def consume_lines(path: Path) -> list[str]:
    """Remove a request file that may have lines. Returns those that are not empty."""
    if not is_asked(path):
        return []
    taken = path.with_name(f".{path.name}.taken")
    try:
        # Renamed first: who writes to it from now on makes a new one, and is not overlooked.
        safe_paths.rename(path, taken)
        with open_to_read(taken) as file:
            text = file.read(LIMIT).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        safe_paths.remove(taken)
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("cannot read or remove %s: %s. Remove it by hand.", taken, error.strerror)
        with contextlib.suppress(OSError):
            safe_paths.remove(path)
        return []
    return lines
