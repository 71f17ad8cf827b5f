"""What belongs into a checkpoint of a TensorFlow 2 job, and what of it can be saved."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.errors import EntryError, StorageError

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


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
      state: a part of a job's state, or what has parts: a dict, list or tuple, a `tf.Module`, a `tf.train.Checkpoint`.
      name: what it is called.

    Returns:
      Each of them by its key in a checkpoint. Of one Keras model they are numbered, in its own order.
    """
    return dict(_hidden(state, name, set(), set()))


def part_of(key: str) -> str:
    """Which Keras model a hidden variable is of: its key without the number."""
    return key.removesuffix(f"/{VALUE}").rpartition("/")[0]


def _hidden(state: Any, name: str, seen: set[int], taken: set[int]) -> Iterator[tuple[str, Any]]:
    """Those of a part, but for what was `seen` or `taken` already: parts may know one another."""
    if id(state) in seen:
        return
    if _is_of_keras(state):
        seen.add(id(state))
        known = {id(variable) for variable in state.weights} | taken
        every = [*state.variables, *getattr(state, "metrics_variables", ())]
        hidden = [variable for variable in every if id(variable) not in known]
        taken.update(map(id, hidden))
        yield from ((f"{name}/{index}/{VALUE}", variable) for index, variable in enumerate(hidden))
        return
    parts = _parts(state)
    if parts:
        seen.add(id(state))
    for key, value in parts:
        yield from _hidden(value, f"{name}/{key.replace('/', '.S')}", seen, taken)


def _is_of_keras(state: Any) -> bool:
    """Whether it is a model or a layer: no class of them, no list of TensorFlow's, no module with such a name."""
    if isinstance(state, list | tuple | Mapping | type):
        return False
    return isinstance(getattr(state, "weights", None), list | tuple) and hasattr(state, "variables")


def _parts(state: Any) -> list[tuple[str, Any]]:
    if isinstance(state, Mapping):
        return [(str(key), value) for key, value in state.items()]
    if isinstance(state, list | tuple):
        return [(str(index), value) for index, value in enumerate(state)]
    if isinstance(state, tf.Module | tf.train.Checkpoint):
        return [(key, value) for key, value in vars(state).items() if not key.startswith("_self_")]
    return []


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


def require_saveable(iterator: Any, otherwise: str) -> None:
    """Refuse an input whose position TensorFlow cannot save: it would be found out at the first checkpoint.

    Args:
      iterator: of the input.
      otherwise: what to do to train without its position.

    Raises:
      EntryError: with what to write instead.
    """
    with tempfile.TemporaryDirectory(prefix="trainerd-") as folder:
        try:
            tf.train.Checkpoint(iterator=iterator).write(str(Path(folder) / "input"))
        except tf.errors.ResourceExhaustedError as error:
            raise StorageError(
                f"cannot try in {folder} whether the dataset's position can be saved: {error}"
            ) from error
        except tf.errors.OpError as error:
            raise EntryError(
                "the dataset's position cannot be saved, so a pause would lose it:\n"
                f"  {re.sub(r'{{.*?}} |  ?.Op:.*', '', str(error).splitlines()[0])}\n"
                "Write it without from_generator and without stateful random ops in `map` (use "
                f"tf.random.stateless_* with a seed from Dataset.random), or {otherwise}."
            ) from error
