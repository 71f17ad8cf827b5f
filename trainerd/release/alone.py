"""Load a release in a process that has nothing of trainerd, and report what it holds and gives. Run as a script.

    python -I alone.py TASK.json

The JSON names what to load, and folders; see `trainerd.release.verify`. The script prints one line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

MADE_BATCH = 2
MADE_SIZE = 32  # of a dimension that the signature leaves open, such as a picture's width

Call = Callable[[Any], Any]


@dataclass(frozen=True)
class Loaded:
    """A release that is loaded.

    Attributes:
      call: calls it with inputs, and keeps it, without which its variables are deleted; None if it cannot be called.
      signature: the structure of its inputs, with a TensorSpec for each; None if it does not say.
      variables: the values of its variables.
      evaluate: gives its metrics for a dataset; None if it has no evaluation.
    """

    call: Call | None
    signature: Any
    variables: list[Any]
    evaluate: Callable[[Any], Mapping[str, float]] | None = None


def load_savedmodel(path: str) -> Loaded:
    """Load a SavedModel."""
    loaded = tf.saved_model.load(path)
    signatures = loaded.signatures.values()
    variables = [*getattr(loaded, "variables", ()), *(each for one in signatures for each in one.variables)]
    values = [each.numpy() for each in {id(each): each for each in variables}.values()] or _values_of_file(path)
    functions = getattr(getattr(loaded, "serve", None), "concrete_functions", None)
    if functions:  # as Keras exports it
        arguments = functions[0].structured_input_signature[0]
        if len(arguments) == 1:
            return Loaded(lambda inputs: loaded.serve(inputs), arguments[0], values)
        return Loaded(lambda inputs: loaded.serve(*inputs), arguments, values)
    serving = "serving_default"
    inputs = loaded.signatures[serving].structured_input_signature[1] if serving in loaded.signatures else {}
    if len(inputs) != 1:  # there is nothing that the model could be called with too
        return Loaded(None, None, values)
    ((name, signature),) = inputs.items()
    return Loaded(lambda given: loaded.signatures[serving](**{name: given}), signature, values)


def _values_of_file(path: str) -> list[Any]:
    """Read the values that a SavedModel holds for objects that it does not list."""
    prefix = Path(path, "variables", "variables")
    if not prefix.with_name("variables.index").exists():
        return []
    reader = tf.train.load_checkpoint(str(prefix))
    return [reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if name.endswith("/VARIABLE_VALUE")]


def load_keras(path: str) -> Loaded:
    """Load a .keras file."""
    import keras

    model = keras.models.load_model(path)
    inputs = getattr(model, "inputs", None)
    if inputs and not isinstance(model, keras.Sequential):
        inputs = model.input  # in the structure that the model takes
    elif inputs:
        (inputs,) = inputs
    as_spec: Any = None
    if inputs is not None:
        as_spec = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape, each.dtype, each.name), inputs)
    return Loaded(
        lambda given: model(given, training=False),
        as_spec,
        [np.asarray(each) for each in model.weights],
        lambda data: model.evaluate(data, verbose=0, return_dict=True),
    )


LOADERS = {"savedmodel": load_savedmodel, "keras": load_keras}


def fitted(given: Any, signature: Any) -> Any:
    """Put an example into the structure of a signature, in its types.

    Raises:
      LookupError, TypeError, ValueError: it does not fit.
    """
    if isinstance(signature, Mapping):
        return {name: fitted(given[name], part) for name, part in signature.items()}
    if isinstance(signature, list | tuple):
        parts = [given[part.name] for part in signature] if isinstance(given, Mapping) else given
        return _sequence(signature, [fitted(one, part) for one, part in zip(parts, signature, strict=True)])
    if isinstance(signature, tf.TensorSpec) and given.dtype != signature.dtype:
        if _kind(given.dtype) > _kind(signature.dtype):
            raise TypeError(f"{given.dtype} is not {signature.dtype}")
        given = tf.cast(given, signature.dtype)
    if not signature.is_compatible_with(given):
        raise ValueError(f"{given} is not {signature}")
    return given


def _sequence(like: Any, parts: list[Any]) -> Any:
    return parts if isinstance(like, list) else tuple(parts)


def saved_form(given: Any) -> Any:
    """Replace lists by tuples: a dataset makes one tensor of a list."""
    if isinstance(given, Mapping):
        return {name: saved_form(part) for name, part in given.items()}
    return tuple(saved_form(part) for part in given) if isinstance(given, list | tuple) else given


def _kind(dtype: Any) -> int:
    """Return the place of a type among those that can be cast to later ones. Raises ValueError for others: texts."""
    return [dtype.is_bool, dtype.is_integer, dtype.is_floating, dtype.is_complex].index(True)


def made(signature: Any) -> Any:
    """Make inputs for a signature.

    Raises:
      LookupError, TypeError, ValueError: it does not say enough for that.
    """
    if isinstance(signature, Mapping):
        return {name: made(part) for name, part in signature.items()}
    if isinstance(signature, list | tuple):
        return _sequence(signature, [made(part) for part in signature])
    if not isinstance(signature, tf.TensorSpec):
        raise TypeError(f"{signature} is not of a plain tensor")
    sizes = [size or (MADE_SIZE if axis else MADE_BATCH) for axis, size in enumerate(signature.shape.as_list())]
    if signature.dtype.is_floating:
        return tf.cast(np.random.default_rng(0).random(sizes), signature.dtype)
    return tf.zeros(sizes, signature.dtype)  # an index of anything, or an empty text


def call_with_examples(loaded: Loaded, task: Mapping[str, Any]) -> dict[str, Any]:
    """Call a release, and save inputs and outputs. Where no example fits, inputs are made of its signature.

    Returns:
      How often it was called, and whether the inputs were made.

    Raises:
      CallError: it fails with an example of the job that fits it.
    """
    if loaded.call is None:
        return {"calls": 0}
    examples = []
    for folder in task["examples"]:
        given = next(iter(tf.data.Dataset.load(folder)))
        try:
            examples.append(given if loaded.signature is None else fitted(given, loaded.signature))
        except (LookupError, TypeError, ValueError, AttributeError):
            continue
    if not examples and loaded.signature is not None and task["may_make"]:
        try:
            _call(loaded.call, made(loaded.signature), task["called"], 0)
        except Exception as error:  # it may take some values only, and nobody knows which
            return {"calls": 0, "rejected": said(error)}
        return {"calls": 1, "made": _as_text(loaded.signature)}
    for number, inputs in enumerate(examples):
        try:
            _call(loaded.call, inputs, task["called"], number)
        except Exception as error:
            raise CallError(said(error)) from error
    return {"calls": len(examples)}


class CallError(Exception):
    """A release fails where its model does not."""


def _call(call: Call, inputs: Any, folder: str, number: int) -> None:
    outputs = tuple(tf.nest.flatten(call(inputs), expand_composites=True))
    tf.data.Dataset.from_tensors((saved_form(inputs), outputs)).save(str(Path(folder, str(number))))


def _as_text(signature: Any) -> str:
    return ", ".join(
        f"{each.dtype.name}{[size if size else None for size in each.shape.as_list()]}".replace("None", "?")
        for each in tf.nest.flatten(signature)
    )


def said(error: BaseException) -> str:
    """Return the type of an error and the beginning of the last paragraph, where Keras puts the reason."""
    line = next(iter(str(error).strip().split("\n\n")[-1].splitlines()), "")
    return f"{type(error).__name__}: {line if len(line) <= 300 else line[:300] + ' …'}"


def digest(value: Any) -> str:
    """Return a digest of a variable's bytes."""
    array = np.asarray(value)
    content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()  # texts are pointers
    return hashlib.blake2b(content).hexdigest()


def run(task: Mapping[str, Any]) -> dict[str, Any]:
    """Do what the task says."""
    try:
        loaded = LOADERS[task["format"]](task["path"])
    except Exception as error:
        return {"load_error": said(error)}
    try:
        found = {"variables": [digest(each) for each in loaded.variables], **call_with_examples(loaded, task)}
    except CallError as error:
        return {"call_error": str(error)}
    if task["validation"] and loaded.evaluate is not None:
        metrics = loaded.evaluate(tf.data.Dataset.load(task["validation"]))
        found["figures"] = {name: float(value) for name, value in metrics.items()}
    return found


if __name__ == "__main__":
    result = run(json.loads(Path(sys.argv[1]).read_text()))
    result["trainerd"] = any(name.split(".")[0] == "trainerd" for name in sys.modules)
    print(json.dumps(result))
