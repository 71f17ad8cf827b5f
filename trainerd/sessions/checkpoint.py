"""What belongs into a checkpoint of a TensorFlow 2 job, and what of it can be saved."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.errors import EntryError


def has_position(prefix: Path) -> bool:
    """Whether a checkpoint holds a dataset's position; True where it cannot be read, which reading it will tell."""
    try:
        return any(name.startswith("iterator/") for name, _ in tf.train.list_variables(str(prefix)))
    except tf.errors.OpError:
        return True


def hidden_variables(state: Any, name: str = "hidden") -> dict[str, Any]:
    """The variables that `tf.train.Checkpoint` does not find in Keras models: seed generators and metrics.

    Without them a model with dropout would go on with other random numbers than the run that was not interrupted.
    They are in the file beside what the object graph names, so that `Checkpoint.read` finds all that it expects.

    Args:
      state: a part of a job's state, or a dict, list or tuple of parts.
      name: what it is called.

    Returns:
      Each of them by its key in a checkpoint.
    """
    if isinstance(state, Mapping):
        parts = [(str(key), value) for key, value in state.items()]
    elif isinstance(state, list | tuple):
        parts = [(str(index), value) for index, value in enumerate(state)]
    elif hasattr(state, "weights") and hasattr(state, "variables"):
        found = {id(variable) for variable in state.weights}
        every = [*state.variables, *getattr(state, "metrics_variables", ())]
        hidden = [variable for variable in every if id(variable) not in found]
        return {f"{name}/{index}/.ATTRIBUTES/VARIABLE_VALUE": variable for index, variable in enumerate(hidden)}
    else:
        return {}
    all_hidden: dict[str, Any] = {}
    for key, value in parts:
        all_hidden |= hidden_variables(value, f"{name}/{key.replace('/', '.S')}")
    return all_hidden


def restore_hidden(prefix: Path, hidden: Mapping[str, Any]) -> None:
    """Read the hidden variables.

    Raises:
      KeyError: the checkpoint has others.
    """
    stored = stored_hidden(prefix)
    if set(stored) != set(hidden):
        raise KeyError(f"the checkpoint has {sorted(stored)}, the job has {sorted(hidden)}")
    for key, variable in hidden.items():
        variable.assign(stored[key])


def stored_hidden(prefix: Path) -> dict[str, Any]:
    """The values of hidden variables in a checkpoint, by their keys."""
    reader = tf.train.load_checkpoint(str(prefix))
    keys = [key for key in reader.get_variable_to_shape_map() if key.startswith("hidden/")]
    return {key: reader.get_tensor(key) for key in keys}


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
