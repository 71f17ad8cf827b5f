"""Reproducible archives: the same files give the same bytes, whenever and wherever it is made."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = (".tar.gz", ".zip")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a .zip can hold
_MODE = 0o644


def archive(folder: Path, path: Path) -> None:
    """Put a folder into an archive.

    Args:
      folder: what is archived, under its own name.
      path: the archive, which ends in one of `SUFFIXES`.

    Raises:
      OSError: it cannot be written.
    """
    (_write_zip if path.name.endswith(".zip") else _write_tar)(folder, path)


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path, str(Path(folder.name, path.relative_to(folder)))


def _write_tar(folder: Path, path: Path) -> None:
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for source, name in _files(folder):
            about = tarfile.TarInfo(name)
            about.size, about.mode = source.stat().st_size, _MODE
            with source.open("rb") as content:
                tar.addfile(about, content)


def _write_zip(folder: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for source, name in _files(folder):
            about = zipfile.ZipInfo(name, _EPOCH)
            about.external_attr, about.compress_type = _MODE << 16, zipfile.ZIP_DEFLATED
            packed.writestr(about, source.read_bytes())
