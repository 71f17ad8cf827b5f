"""Reads checkpoints from their first byte to their last, to find those that are damaged."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from trainerd.checkpoints import saver_checkpoints
from trainerd.checkpoints.manifest import DamagedError
from trainerd.rundir.paths import RunDirectory

tf1 = tf.compat.v1


def read_whole(prefix: Path) -> int | None:
    """Read every tensor of a checkpoint, which TensorFlow compares with its checksum, and the graph beside it.

    Returns:
      The global step in it; None if it holds none under that name.

    Raises:
      DamagedError: one cannot be read.
    """
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        values = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
        _require_graph(prefix.with_name(f"{prefix.name}.meta"))
    except (ValueError, IndexError, tf.errors.OpError) as error:
        raise DamagedError(str(error).splitlines()[0]) from error
    return int(values["global_step"]) if "global_step" in values else None


def _require_graph(path: Path) -> None:
    """Require that a graph beside a checkpoint can be read, if there is one.

    Raises:
      DamagedError: it cannot.
    """
    try:
        if path.exists():
            tf1.MetaGraphDef.FromString(path.read_bytes())
    except (DecodeError, OSError) as error:
        raise DamagedError(f"{path.name}: {error}") from error


def newest_checkpoint(folder: str) -> str | None:
    """Return the prefix of the newest checkpoint in a folder that verifies; None if there is none.

    Raises:
      DataError: there are checkpoints, and none can be read.
    """
    found = saver_checkpoints.newest_readable(RunDirectory.of(folder), read_whole)
    return str(found) if found is not None else None
