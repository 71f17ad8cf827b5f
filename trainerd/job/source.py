"""The source of a job: the files of its folder that were imported, each with a digest."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import xxhash

_PACKAGES = {"site-packages", "dist-packages"}


def source_of(entry: str, folder: Path) -> str:
    """Return the files of a loaded entry: that of its module first, then the others that were imported from the folder.

    Returns:
      Such as "job.py 0123456789abcdef; data.py fedcba9876543210"; empty if the entry's module has no file.
    """
    own = _file_of(sys.modules.get(entry.partition(":")[0]))
    if own is None:
        return ""
    others = {file for module in [*sys.modules.values()] if (file := _file_of(module)) and _is_in(folder, file)}
    return "; ".join(_described(file, folder) for file in [own, *sorted(others - {own})])


def source_of_program() -> str:
    """Return the files of the program that this process runs; see `source_of`. Empty at a prompt and in a notebook."""
    own = _file_of(sys.modules.get("__main__"))
    return source_of("__main__", own.parent) if own is not None else ""


def names_of(source: str) -> list[str]:
    """Return the names of the files that `source_of` gave, relative to the folder."""
    return [name for name, _, digest in (each.rpartition(" ") for each in source.split("; ")) if name and digest]


def is_unchanged(source: str, folder: Path) -> bool:
    """Return whether the files that `source_of` gave are all in the folder, and are what they were."""
    files = [each.rpartition(" ") for each in source.split("; ")]
    return all(name and _digest(folder / name) == digest for name, _, digest in files)


def _file_of(module: object) -> Path | None:
    if not isinstance(module, ModuleType):
        return None
    # A lazy module imports what it stands for if it is asked in the ordinary way.
    file = ModuleType.__getattribute__(module, "__dict__").get("__file__")
    return Path(file) if isinstance(file, str) else None


def _is_in(folder: Path, file: Path) -> bool:
    """Return whether it is a file of the folder, and not of a Python that is installed there."""
    if not file.is_relative_to(folder) or file.is_relative_to(sysconfig.get_path("stdlib")):
        return False
    return not _PACKAGES & set(file.relative_to(folder).parts)


def _described(file: Path, folder: Path) -> str:
    name = str(file.relative_to(folder)) if file.is_relative_to(folder) else file.name
    return " ".join(filter(None, [name, _digest(file)]))


def _digest(file: Path) -> str:
    """Return the digest of a file; empty if it is none, or cannot be read."""
    try:
        return xxhash.xxh3_64_hexdigest(file.read_bytes()) if file.is_file() else ""
    except OSError:
        return ""
