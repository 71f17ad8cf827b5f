"""The files that a dataset's stages write: `cache(FILE)` and `snapshot(PATH)`."""

from __future__ import annotations

import contextlib
import gc
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.job.user_code import half_written_cache, job_traceback
from trainerd.sessions.input.pipeline import stage_name, stages

_PATHS = {"Cache": "_filename", "Snapshot": "_path"}
_COARSE_SECS = 0.05  # by which the time of a file may be behind


@contextlib.contextmanager
def removed() -> Iterator[None]:
    """Remove what the datasets of this process write while the block runs.

    A trial reads a few batches and leaves a cache that is half written, with which TensorFlow refuses each later start.
    If anything was there before, all stays: another process may write it. So it does if TensorFlow has refused a cache.
    """
    began, is_refused = time.time() - _COARSE_SECS, False
    try:
        yield
    except BaseException as error:
        is_refused = bool(half_written_cache(job_traceback(error)))
        raise
    finally:
        if not is_refused:
            _remove(began)


def _remove(began: float) -> None:
    """Remove the caches and snapshots that were made after a time, in seconds since 1970 (UTC)."""
    for kind, path in sorted(_of_datasets()):
        files = _files(kind, path)
        if not files or not all(_is_newer(each, began) for file in files for each in (file, *file.rglob("*"))):
            continue
        # An iterator writes a snapshot in the background. It does not find the folder again once that is moved.
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=path.parent, prefix=".trainerd-") as folder:
            for each in files if kind == "Cache" else [path]:
                each.rename(Path(folder) / each.name)


def _is_newer(path: Path, began: float) -> bool:
    try:
        return path.lstat().st_ctime >= began
    except OSError:  # it is gone again
        return True


def _of_datasets() -> set[tuple[str, Path]]:
    """Return the kind and the path of each stage that writes files, of all datasets that this process has."""
    datasets = [each for each in gc.get_objects() if issubclass(type(each), tf.data.Dataset)]
    found = set()
    for stage in (stage for dataset in datasets for stage in stages(dataset)):
        path = getattr(stage, _PATHS.get(kind := stage_name(stage), ""), None)
        said: Any = tf.get_static_value(path) if isinstance(path, tf.Tensor) else path
        said = said.item() if hasattr(said, "item") else said
        if said:  # a cache in memory has none
            found.add((kind, Path(said.decode() if isinstance(said, bytes) else str(said)).absolute()))
    return found


def _files(kind: str, path: Path) -> list[Path]:
    """Return the files of a stage: the parts of a cache and the whole, or all in the folder of a snapshot."""
    if kind == "Snapshot":
        return [*path.iterdir()] if path.is_dir() else []
    own = re.compile(re.escape(path.name) + r"(_\d+)?\.(index|lockfile|data-\d.*)")
    return [each for each in path.parent.glob("*") if own.fullmatch(each.name)]
