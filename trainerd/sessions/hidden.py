"""What `tf.train.Checkpoint` does not find in Keras models, and is saved beside what it does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def hidden_variables(state: Any, tracked: Iterable[Any]) -> dict[str, Any]:
    """The variables that `tf.train.Checkpoint` does not find in Keras models.

    Those are seed generators and metrics, without which a model with dropout would go on with other random numbers than
    the run that was not interrupted; and all that stands in a list or a dict of a model: layers, optimizers, and more.
    They are in the file beside what the object graph names, so that `Checkpoint.read` finds all that it expects.

    Args:
      state: a part of a job's state, or what has parts: a dict, list or tuple, a `tf.Module`, a `tf.train.Checkpoint`.
      tracked: the variables that `tf.train.Checkpoint` finds in it.

    Returns:
      Each of them by its key in a checkpoint. Of one Keras model they are numbered, in its own order.
    """
    return dict(_hidden(state, "hidden", set(), {_identity(variable) for variable in tracked}))


def part_of(key: str) -> str:
    """Which Keras model a hidden variable is of: its key without the number."""
    return key.removesuffix(f"/{VALUE}").rpartition("/")[0]


def _hidden(state: Any, name: str, seen: set[int], taken: set[int]) -> Iterator[tuple[str, Any]]:
    """Those of a part, but for what was `seen`, or is `taken` already: parts may know one another."""
    if id(state) in seen:
        return
    if _is_of_keras(state):
        seen.add(id(state))
        every = [*state.variables, *getattr(state, "metrics_variables", ()), *_within(state, set())]
        hidden = {_identity(variable): variable for variable in every if _identity(variable) not in taken}
        taken.update(hidden)
        yield from ((f"{name}/{index}/{VALUE}", variable) for index, variable in enumerate(hidden.values()))
        return
    parts = _parts(state)
    if parts:
        seen.add(id(state))
    for key, value in parts:
        yield from _hidden(value, f"{name}/{key.replace('/', '.S')}", seen, taken)


def _identity(variable: Any) -> int:
    """The same for a variable of Keras and the one of TensorFlow that it is made of."""
    return id(getattr(variable, "handle", variable))


def _within(part: Any, seen: set[int]) -> Iterator[Any]:
    """The variables of a layer or a model that are in its attributes, and in the lists and dicts that those are."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, tf.Variable | keras.Variable):
        yield part
    elif isinstance(part, tf.random.Generator | keras.random.SeedGenerator):
        yield part.state
    elif isinstance(part, keras.optimizers.Optimizer | keras.metrics.Metric | tf.Module):
        yield from part.variables
    else:
        for each in _contents(part):
            yield from _within(each, seen)


def _contents(part: Any) -> Iterable[Any]:
    if isinstance(part, list | tuple):
        return part
    if isinstance(part, Mapping):
        return part.values()
    return list(vars(part).values()) if isinstance(part, keras.layers.Layer) else ()


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
