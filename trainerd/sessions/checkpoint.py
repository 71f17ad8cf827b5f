"""The state of a TensorFlow 2 job as a checkpoint in TensorFlow's own format."""

from __future__ import annotations

import errno
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.checkpoints.snapshot import UnsoundError
from trainerd.errors import EntryError


@dataclass(frozen=True)
class FunctionSnapshot:
    """The state at one boundary. Reads the variables when it is written, so it must be written before a step.

    Attributes:
      step: the global step of the boundary.
      checkpoint: tracks the state.
      refuse_nan: whether a variable that holds a NaN must not be saved.
    """

    step: int
    checkpoint: tf.train.Checkpoint
    refuse_nan: bool = True

    def write(self, prefix: Path, moved: Callable[[int], None]) -> None:
        """Write `prefix.index` and `prefix.data-*`."""
        try:
            self.checkpoint.write(str(prefix))
        except tf.errors.ResourceExhaustedError as error:
            raise OSError(errno.ENOSPC, "No space left on device") from error
        except tf.errors.OpError as error:
            raise OSError(errno.EIO, str(error).splitlines()[0]) from error
        if self.refuse_nan:
            _require_no_nan(prefix, moved)


def has_position(prefix: Path) -> bool:
    """Whether a checkpoint holds a dataset's position; True where it cannot be read, which reading it will tell."""
    try:
        return any(name.startswith("iterator/") for name, _ in tf.train.list_variables(str(prefix)))
    except tf.errors.OpError:
        return True


def hidden_variables(state: Any, name: str = "") -> dict[str, list[Any]]:
    """The variables that `tf.train.Checkpoint` does not find in Keras models: seed generators and metrics.

    Without them a model with dropout would go on with other random numbers than the run that was not interrupted.

    Args:
      state: a part of a job's state, or a dict, list or tuple of parts.
      name: what it is called.

    Returns:
      The name of each part that has such variables, and those.
    """
    if isinstance(state, Mapping):
        parts = [(str(key), value) for key, value in state.items()]
    elif isinstance(state, list | tuple):
        parts = [(str(index), value) for index, value in enumerate(state)]
    elif hasattr(state, "weights") and hasattr(state, "variables"):
        found = {id(variable) for variable in state.weights}
        hidden = [variable for variable in state.variables if id(variable) not in found]
        return {name: hidden} if hidden else {}
    else:
        return {}
    all_hidden: dict[str, list[Any]] = {}
    for key, value in parts:
        all_hidden |= hidden_variables(value, f"{name}.{key}" if name else key)
    return all_hidden


def _require_no_nan(prefix: Path, moved: Callable[[int], None]) -> None:
    """Read back what was written, and refuse it where a variable holds a NaN."""
    reader = tf.train.load_checkpoint(str(prefix))
    for key, dtype in sorted(reader.get_variable_to_dtype_map().items()):
        if dtype.is_floating or dtype.is_complex:
            value = reader.get_tensor(key)
            if np.isnan(value).any():
                name = key.split("/.ATTRIBUTES")[0]
                raise UnsoundError(f"the variable {name!r} holds a NaN")
            moved(value.nbytes)


def require_saveable(iterator: Any) -> None:
    """Refuse an input whose position TensorFlow cannot save: it would be found out at the first checkpoint.

    Raises:
      EntryError: with what to write instead.
    """
    with tempfile.TemporaryDirectory(prefix="trainerd-") as folder:
        try:
            tf.train.Checkpoint(iterator=iterator).write(str(Path(folder) / "input"))
        except tf.errors.OpError as error:
            raise EntryError(
                "the dataset's position cannot be saved, so a pause would lose it:\n"
                f"  {re.sub(r'{{.*?}} |  ?.Op:.*', '', str(error).splitlines()[0])}\n"
                "Write it without from_generator and without stateful random ops in `map` (use "
                'tf.random.stateless_* with a seed from Dataset.random), or set `input_position = "restart"` to '
                "begin the dataset anew at every start."
            ) from error
