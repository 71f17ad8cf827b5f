"""Variables of Keras models that `tf.train.Checkpoint` does not find: they are saved beside those that it does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainerd.errors import EntryError

log = logging.getLogger(__name__)

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"
# No attribute and no key of a dict gets such a name: see escaped.
_METRICS, _SEEDS, _INNER, _INNER_OF_METRICS = "/.METRICS", "/.SEEDS", "/.INNER", "/.INNER.METRICS"
# Where Keras lists once more what the program has under a name of its own, which is what stays the same.
_LISTED_AGAIN = ("_trainable_variables", "_non_trainable_variables", "_layers", "_metrics", "_seed_generators")
_SHOWN = 5  # names in a message
_LONG = 1000  # elements of a list, such as a vocabulary: the first shows what the others are
_PLAIN = (str, bytes, int, float, type(None), np.ndarray)
_Parts = Sequence[tuple[str, Any]]  # an owner first, and what `_walk` finds in it
# What Keras calls in a step and does not track as it tracks a layer: not each variable in it is among its `variables`.
_NOT_LAYERS = (
    keras.metrics.Metric
    | keras.optimizers.Optimizer
    | keras.losses.Loss
    | keras.optimizers.schedules.LearningRateSchedule
    | keras.regularizers.Regularizer
    | keras.constraints.Constraint
)


def hidden_variables(state: Any, tracked: Iterable[Any]) -> dict[str, Any]:
    """Return the variables that `tf.train.Checkpoint` does not find in Keras models.

    Those are seed generators and metrics, without which a model with dropout would resume with other random numbers
    than the run that was not interrupted; all that stands in a list or a dict of a model: layers, optimizers, and more;
    and each variable that a metric, an optimizer, a loss, or the like has in an attribute of its own.
    They are in the file beside what the object graph names, so that `Checkpoint.read` finds all that it expects.

    Args:
      state: a part of a job's state, or a container of parts: a dict, list or tuple, a `tf.Module`, a
        `tf.train.Checkpoint`.
      tracked: the variables that `tf.train.Checkpoint` finds in it.

    Returns:
      Each of them by its key in a checkpoint. Seed generators of one Keras model are numbered, in its own order, and so
      are its metrics; the rest is named by its path: attributes, keys, and places in lists.

    Raises:
      EntryError: two of them have one name.
    """
    found: dict[str, Any] = {}
    for key, variable in _hidden(state, {identity(variable) for variable in tracked}):
        if key in found:
            where = key.removesuffix(f"/{VALUE}")
            raise EntryError(f"two variables of the state have the name {where}. Rename one of them.")
        found[key] = variable
    return found


def drawn_seeds(graph: Any, known: Iterable[Any]) -> dict[str, Any]:
    """Return the states of Keras's seed generators that a graph draws from, by their keys in a checkpoint.

    No model lists the generator that `keras.random` uses where it gets no seed, or one that stands in a global.

    Args:
      graph: of a step.
      known: the variables that a checkpoint has already.
    """
    taken = {identity(variable) for variable in known}
    states = {identity(each): each for each in graph.variables if each.name.endswith("seed_generator_state:0")}
    order = [id(handle) for handle, _ in graph.captures]  # `variables` is a set
    drawn = [states[each] for each in order if each in states.keys() - taken]
    return {f"hidden/step{_INNER}/{number}/{VALUE}": each for number, each in enumerate(drawn)}


def is_untracked(part: Any) -> bool:
    """Return whether `tf.train.Checkpoint` refuses such a part; all of it is then among the hidden variables."""
    return isinstance(part, keras.metrics.Metric | keras.random.SeedGenerator)


def identity(variable: Any) -> int:
    """Return an identity that a variable of Keras shares with the variable of TensorFlow in it."""
    return id(getattr(variable, "handle", variable))


def part_of(key: str) -> str:
    """Return the part of a model that a hidden variable belongs to: its key without the last number."""
    return key.removesuffix(f"/{VALUE}").rpartition("/")[0]


def is_of_metrics(key: str) -> bool:
    """Return whether a hidden variable is a metric's, which each epoch resets."""
    return part_of(key).endswith((_METRICS, _INNER_OF_METRICS))


def is_inner(key: str) -> bool:
    """Return whether a hidden variable is an attribute of a metric, an optimizer, or the like, or a seed generator that
    no model lists: older checkpoints lack it."""
    return f"{_INNER}/" in key or f"{_INNER_OF_METRICS}/" in key


def is_of_seeds(key: str) -> bool:
    """Return whether a hidden variable is a seed generator's that Keras has listed."""
    return part_of(key).endswith(_SEEDS)


def parts_of(state: Any) -> Iterator[Any]:
    """Yield all layers, optimizers and metrics of a state, and other objects in them."""
    for _, owner in _owners(state, "", set()):
        yield from (part for _, part in _walk(owner))


def optimizer_kinds(state: Any) -> dict[str, str]:
    """Return the class of each optimizer, by its path, for a fingerprint.

    An optimizer's variables have no names in a checkpoint: another optimizer with as many would take them for its own.
    """
    return {
        f"job.optimizer.{f'{name}/{path}'.strip('/')}": _kind(part)
        for name, owner in _owners(state, "", set())
        for path, part in _walk(owner)
        if isinstance(part, keras.optimizers.Optimizer)
    }


def _kind(optimizer: Any) -> str:
    inner = getattr(optimizer, "inner_optimizer", None)  # of a LossScaleOptimizer; a MultiOptimizer has its own later
    return type(optimizer).__name__ + (f"({_kind(inner)})" if inner is not None else "")


def _hidden(state: Any, taken: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the hidden variables of a state by key, unless they are in `taken`: parts may refer to one another."""
    owners = [(name, list(_walk(owner))) for name, owner in _owners(state, "hidden", set())]
    for find in (_not_listed, _inner):
        for name, parts in owners:
            for key, variable in find(name, parts):
                if identity(variable) not in taken:
                    taken.add(identity(variable))
                    yield f"{key}/{VALUE}", variable


def _not_listed(name: str, parts: _Parts) -> Iterator[tuple[str, Any]]:
    """Yield the variables of an owner that TensorFlow may not find, by their keys in a checkpoint."""
    _, owner = parts[0]
    if isinstance(owner, keras.metrics.Metric):
        yield from _numbered(f"{name}{_METRICS}", owner.variables)
    elif isinstance(owner, keras.random.SeedGenerator):
        yield f"{name}{_SEEDS}/0", owner.state
    elif isinstance(owner, keras.optimizers.Optimizer):  # a MultiOptimizer has more than it lists
        yield from _numbered(name, owner.variables)
    elif _is_of_keras(owner):
        metrics = {identity(each): each for each in getattr(owner, "metrics_variables", ())}
        seeds = [each for each in owner.variables if identity(each) not in metrics]
        weights = {identity(each) for each in owner.weights}
        yield from _numbered(f"{name}{_SEEDS}", (each for each in seeds if identity(each) not in weights))
        yield from _numbered(f"{name}{_METRICS}", metrics.values())
        yield from ((f"{name}/{path}", variable) for path, variable in _within(parts))


def _inner(name: str, parts: _Parts) -> Iterator[tuple[str, Any]]:
    """Yield the variables in metrics, optimizers, losses, and the like of an owner, by their keys in a checkpoint.

    Those of metrics are numbered: a compiled metric stands in objects of Keras whose attributes have private names.
    """
    of_metrics: dict[int, Any] = {}
    for path, part in parts:
        if isinstance(part, _NOT_LAYERS):
            where = f"{name}/{path}".rstrip("/") + _INNER
            inside = list(_walk(part, _contents_beside_layers))
            found = [each for inner, held in inside for each in _variables_of(f"{where}/{inner}", held)]
            if isinstance(part, keras.metrics.Metric):
                metrics = [held for _, held in inside if isinstance(held, keras.metrics.Metric)]
                listed = {identity(variable) for metric in metrics for variable in metric.variables}
                of_metrics |= {identity(each): each for _, each in found if identity(each) not in listed}
            else:
                yield from found
    yield from _numbered(f"{name}{_INNER_OF_METRICS}", of_metrics.values())


def _owners(state: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a state that have no parts themselves, and Keras' models and layers, each with its path."""
    if id(state) in seen:
        return
    seen.add(id(state))
    parts = [] if _is_of_keras(state) else _parts(state)
    if not parts:
        yield name, state
    for key, value in parts:
        yield from _owners(value, f"{name}/{escaped(key)}", seen)


def escaped(name: object) -> str:
    """Return a name as a part of a path, escaped as in TensorFlow's object graph."""
    return str(name).replace(".", "..").replace("/", ".S")


def _numbered(name: str, variables: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{name}/{index}", variable) for index, variable in enumerate(variables))


def _within(parts: _Parts) -> Iterator[tuple[str, Any]]:
    """Yield the variables in a model's attributes, and in attributes that are lists or dicts, each with its path."""
    for path, part in parts:
        if isinstance(part, keras.metrics.Metric):  # of a compiled model within this one, for one
            yield from _numbered(f"{path}{_METRICS}", part.variables)
        elif isinstance(part, keras.optimizers.Optimizer):
            yield from _numbered(path, part.variables)
        else:
            yield from _variables_of(path, part)


def _variables_of(path: str, part: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables of an object that is a variable or has variables, each with its path."""
    if isinstance(part, tf.Variable | keras.Variable):
        yield path, part
    elif isinstance(part, tf.random.Generator | keras.random.SeedGenerator):
        yield f"{path}/state", part.state
    elif isinstance(part, tf.Module):
        yield from _numbered(path, part.variables)


def _walk(model: Any, contents: Callable[[Any], Iterable[tuple[str, Any]]] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield an object and everything in its attributes, and in attributes that are lists or dicts, each with its path.

    Args:
      model: where to begin.
      contents: what is in a part, by its name. Default: `_contents`.
    """
    left, seen = [("", model)], set()
    while left:
        path, part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield path, part
        left += reversed([(f"{path}/{name}".lstrip("/"), each) for name, each in (contents or _contents)(part)])


def _contents(part: Any) -> Iterable[tuple[str, Any]]:
    """Return the objects that may hold variables, by name: those in a list, a dict, or the attributes of a layer."""
    if isinstance(part, keras.layers.Layer):
        named = sorted(vars(part), key=lambda name: name in _LISTED_AGAIN or name.startswith("_self_"))
        return ((name, vars(part)[name]) for name in named if not isinstance(vars(part)[name], _PLAIN))
    return _elements(part)


def _contents_beside_layers(part: Any) -> Iterable[tuple[str, Any]]:
    """Return the objects that may hold variables, by name: those in a list, a dict, or the attributes of a non-layer.

    A layer that one of these refers to is not part of it, nor are the variables that an optimizer trains.
    """
    if isinstance(part, _NOT_LAYERS):
        named = [name for name in vars(part) if name not in _LISTED_AGAIN and not name.startswith("_self_")]
        return ((name, vars(part)[name]) for name in named if not isinstance(vars(part)[name], _PLAIN))
    return _elements(part)


def _elements(part: Any) -> Iterable[tuple[str, Any]]:
    """Return the objects in a list or a dict that may hold variables, by index or key."""
    if isinstance(part, list | tuple):
        if len(part) > _LONG and isinstance(part[0], _PLAIN):
            return ()
        return ((str(index), each) for index, each in enumerate(part) if not isinstance(each, _PLAIN))
    if isinstance(part, dict):
        return ((escaped(name), each) for name, each in part.items() if not isinstance(each, _PLAIN))
    return ()


def _is_of_keras(state: Any) -> bool:
    """Return whether an object is a model or a layer, and not a class, a list of TensorFlow's, or a module with such
    a name."""
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
    missing = hidden.keys() - stored.keys()
    if stored.keys() - hidden.keys() or not all(map(is_inner, missing)):
        raise KeyError(f"the checkpoint has {sorted(stored)}, the job has {sorted(hidden)}")
    warn_of_missing(missing)
    for key in hidden.keys() - missing:
        hidden[key].assign(stored[key])


def warn_of_missing(keys: Collection[str]) -> None:
    """Warn of variables that a checkpoint has no values for."""
    if keys:
        names = ", ".join(key.removesuffix(f"/{VALUE}") for key in sorted(keys)[:_SHOWN])
        log.warning(
            "the checkpoint has no values for %d variables of metrics, optimizers, losses or seed generators: %s. They "
            "keep their initial values",
            len(keys),
            names,
            extra={"event": "hidden"},
        )


def stored_hidden(prefix: Path) -> dict[str, Any]:
    """Return the values of hidden variables in a checkpoint, by their keys."""
    reader = tf.train.load_checkpoint(str(prefix))
    keys = [key for key in reader.get_variable_to_shape_map() if key.startswith("hidden/")]
    return {key: reader.get_tensor(key) for key in keys}
