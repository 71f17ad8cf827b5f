"""Loads a release in a process that has nothing of trainerd, and says what it gives. Run as a script, by its path.

    python -I alone.py JOB.json

The JSON names what to load and the data; see `trainerd.release.verify`. It prints one line of JSON: {"differ": ...}.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def batches_of(folder: str) -> Iterator[tuple[list[Any], list[Any]]]:
    """The batches that were saved: for each, its inputs in order, and the outputs that the model gave."""
    for path in sorted(Path(folder).glob("batch-*.npz")):
        with np.load(path) as file:
            names = sorted(file.files, key=lambda name: (name.split("_")[0], int(name.split("_")[1])))
            yield (
                [file[name] for name in names if name.startswith("in_")],
                [file[name] for name in names if name.startswith("out_")],
            )


def worst(ones: Sequence[Any], others: Sequence[Any]) -> float:
    """The largest difference of two lists of arrays, as a share of the largest number in them."""
    found = 0.0
    for one, other in zip(ones, others, strict=True):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        if one.shape != other.shape or (np.isnan(one) != np.isnan(other)).any():
            return float("inf")
        scale = max(1e-6, float(np.nanmax(np.abs(one), initial=0.0)))
        found = max(found, float(np.nanmax(np.abs(one - other), initial=0.0)) / scale)
    return found


def built(structure: Any, arrays: Sequence[Any]) -> Any:
    """The inputs in their structure: lists and dicts of the places of the arrays."""
    if isinstance(structure, dict):
        return {name: built(part, arrays) for name, part in structure.items()}
    return [built(part, arrays) for part in structure] if isinstance(structure, list) else arrays[structure]


def outputs(call: Callable[[Any], Any], job: dict[str, Any]) -> float:
    """How far the outputs of a function are from those that were saved."""
    import tensorflow as tf

    found = 0.0
    for inputs, expected in batches_of(job["batches"]):
        given = call(built(job["structure"], [tf.constant(each) for each in inputs]))
        found = max(found, worst(expected, [each.numpy() for each in tf.nest.flatten(given)]))
    return found


def check_savedmodel(job: dict[str, Any]) -> dict[str, Any]:
    """Load a SavedModel, and call it; where it cannot be called with the data, compare its variables."""
    import tensorflow as tf

    loaded = tf.saved_model.load(job["path"])
    if job["batches"] and hasattr(loaded, "serve"):
        return {"outputs": outputs(lambda inputs: served(loaded.serve, inputs), job)}
    signature = loaded.signatures.get("serving_default")
    if job["structure"] == 0 and signature is not None and len(signature.structured_input_signature[1]) == 1:
        name = next(iter(signature.structured_input_signature[1]))
        return {"outputs": outputs(lambda inputs: signature(**{name: inputs}), job)}
    variables = [*getattr(loaded, "variables", []), *(each for f in loaded.signatures.values() for each in f.variables)]
    return compared({digest(each.numpy()) for each in variables}, job)


def served(serve: Callable[..., Any], inputs: Any) -> Any:
    """What a served function gives: it may take several inputs as one argument, or each as its own."""
    try:
        return serve(inputs)
    except (TypeError, ValueError):
        if not isinstance(inputs, list):
            raise
        return serve(*inputs)


def digest(value: Any) -> str:
    """A digest of a variable's bytes."""
    return hashlib.blake2b(np.asarray(value).tobytes()).hexdigest()


def compared(held: set[str], job: dict[str, Any]) -> dict[str, Any]:
    """How many variables there are, and how many of them the checkpoint does not have."""
    return {"variables": len(held), "unknown": len(held - set(job["variables"]))}


def check_keras(job: dict[str, Any]) -> dict[str, Any]:
    """Load a .keras file, call the model, and evaluate it if there are data for that."""
    import keras
    import tensorflow as tf

    model = keras.models.load_model(job["path"])
    found: dict[str, Any] = {}
    if job["batches"]:
        found["outputs"] = outputs(lambda inputs: model(inputs, training=False), job)
    if job["validation"]:
        data = tf.data.Dataset.load(job["validation"])
        figures = model.evaluate(data, verbose=0, return_dict=True)
        found["figures"] = {name: float(value) for name, value in figures.items()}
    return found


def check_weights(job: dict[str, Any]) -> dict[str, Any]:
    """Read a file of weights, and compare each array."""
    import h5py

    held = set[str]()

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            held.add(digest(item))

    with h5py.File(job["path"]) as file:
        file.visititems(visit)
    return compared(held, job)


CHECKS = {"savedmodel": check_savedmodel, "keras": check_keras, "weights": check_weights}

if __name__ == "__main__":
    task = json.loads(Path(sys.argv[1]).read_text())
    result = CHECKS[task["format"]](task)
    result["trainerd"] = any(name.split(".")[0] == "trainerd" for name in sys.modules)
    print(json.dumps(result))
