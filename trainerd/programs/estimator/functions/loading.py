"""A state as it is in a checkpoint, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.keras_variables import hidden_variables, is_untracked, stored_hidden
from trainerd.checkpoints.contents.object_graph import own_objects, variables_among
from trainerd.checkpoints.contents.tensor_values import Values
from trainerd.errors import DataError


@contextlib.contextmanager
def loaded(state: Mapping[str, Any], prefix: str | None) -> Iterator[None]:
    """Give a job's state the values of a checkpoint while the block runs. Then it is again what it was before.

    What is not built yet is built with the values of the checkpoint.

    Args:
      state: see `trainerd.Job`.
      prefix: the checkpoint; None for the state as it is.

    Raises:
      DataError: the checkpoint does not fit the state.
    """
    checkpoint = tf.train.Checkpoint(**{name: part for name, part in state.items() if not is_untracked(part)})
    tracked = variables_among(own_objects(checkpoint))
    hidden = hidden_variables(state, tracked)
    before = Values([*tracked, *hidden.values()])
    try:
        if prefix is not None:
            _read(checkpoint, hidden, prefix)
        yield
    finally:
        before.put_back()


def _read(checkpoint: tf.train.Checkpoint, hidden: Mapping[str, Any], prefix: str) -> None:
    try:
        checkpoint.read(prefix).assert_existing_objects_matched().expect_partial()
        stored = stored_hidden(Path(prefix))
        for key in hidden.keys() & stored.keys():
            hidden[key].assign(stored[key])
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        raise DataError(
            f"{prefix} does not fit the model: its files are sound, but its variables are not those of the "
            f"model. Use another `model_dir` for another model.\n{str(error).splitlines()[0]}"
        ) from error
