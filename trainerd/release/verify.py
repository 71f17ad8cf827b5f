"""Verify a release: a process without trainerd loads it, and must get from it what the checkpoint gives."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.checkpoints.contents.object_graph import own_objects, variables_among
from trainerd.errors import ReleaseError
from trainerd.loop.contract import Exportable
from trainerd.release.alone import digest, said, saved_form
from trainerd.text import counted

log = logging.getLogger(__name__)

BATCHES = 4
TOLERANCE = 1e-4  # as a share of the largest number: another process may take other kernels
_SCRIPT = Path(__file__).with_name("alone.py")
_NAMED = 5  # variables, in a message
_NO_RELEASE = "There is no release."


@dataclass(frozen=True)
class References:
    """The variables of the checkpoint's model, its inputs, and the metrics that it gives.

    Attributes:
      exportable: the model and its data.
      examples: the folders of the examples that the model takes, each a saved dataset.
      validation: a saved dataset to evaluate with; "" if there is none.
      figures: the metrics of that evaluation.
      variables: a digest of the bytes of every variable of the checkpoint.
      model: the same of the model's variables, which a release must hold, by name.
    """

    exportable: Exportable
    examples: list[str]
    validation: str
    figures: Mapping[str, float]
    variables: set[str]
    model: Sequence[tuple[str, str]]


def references_of(
    exportable: Exportable, variables: set[str], figures: Mapping[str, float], folder: Path
) -> References:
    """Put the inputs for the model into a folder.

    Args:
      exportable: the model and its data.
      variables: a digest of the bytes of every variable of the checkpoint.
      figures: the metrics of its evaluation.
      folder: an empty folder.
    """
    examples = _save_examples(exportable, folder)
    validation = _save_validation(exportable, folder / "validation")
    model = [(name, digest(_value(each))) for name, each in model_variables(exportable)]
    return References(exportable, examples, validation, figures, variables | {each for _, each in model}, model)


def model_variables(exportable: Exportable) -> list[tuple[str, Any]]:
    """Return the variables from which a model computes its outputs, by name: not of optimizer, metrics and seeds.

    TensorFlow's own variables, which Keras does not count among its weights, are among them if a call reads them.
    """
    model = exportable.model
    if model is None:
        return []
    plain = _plain_in(model)
    read = _read_by(exportable) if plain else []
    named = [(each.name.removesuffix(":0"), each) for each in plain if read is None or id(each) in read]
    return [*((each.path, each) for each in model.weights), *named]


def _read_by(exportable: Exportable) -> list[int] | None:
    """Return the ids of the variables that a call of the model reads; None if it cannot be called to find out."""
    call = tf.function(lambda inputs: exportable.model(inputs, training=False))
    for inputs in (*exportable.examples(1), *_own_inputs(exportable.model)):
        try:
            return [id(each) for each in call.get_concrete_function(inputs).graph.variables]
        except Exception as error:  # the dataset gives something else than the model takes
            log.debug("an example does not fit the model: %s", error)
    return None


def _own_inputs(model: Any) -> Iterator[Any]:
    """Yield what a model says that it takes, if it does."""
    if specs := [tf.TensorSpec(each.shape, each.dtype) for each in getattr(model, "inputs", None) or ()]:
        yield specs[0] if len(specs) == 1 else specs


def _plain_in(part: Any) -> list[Any]:
    """Return TensorFlow's own variables, which Keras does not count among its weights, except states of generators."""
    objects = own_objects(tf.train.Checkpoint(part=part))
    states = [id(each.state) for each in objects if isinstance(each, tf.random.Generator)]
    return [each for each in variables_among(objects) if isinstance(each, tf.Variable) and id(each) not in states]


def _value(variable: Any) -> Any:
    return variable.numpy() if isinstance(variable, tf.Variable) else np.asarray(variable)


def verify(path: Path, form: str, references: References, folder: Path) -> str:
    """Load a file or folder of a release, and compare.

    Args:
      path: what is loaded.
      form: "savedmodel", "keras" or "weights".
      references: what it must give.
      folder: for the files of the process that loads it.

    Returns:
      What was compared, for `release.json`.

    Raises:
      ReleaseError: it does not load, lacks a variable of the model, or gives something else.
    """
    if form == "weights":
        return _verify_weights(path, references.exportable)
    is_model = form == "keras" or references.exportable.export is None
    called = folder / f"{form}-called"
    task = {
        "format": form,
        "path": str(path),
        "examples": references.examples,
        "may_make": is_model,  # the outputs of a job's own `export` may be others than the model's
        "called": str(called),
        "validation": references.validation,
    }
    found = _load_alone(path, task, folder / f"{form}.json")
    if not found["variables"]:
        raise ReleaseError(
            f"{path.name} holds no variable. {_NO_RELEASE} Have the job's `export` save the object that holds the "
            "variables: tf.saved_model.save(module, str(directory))."
        )
    if is_model:
        _require_all(path, form, references.model, Counter(found["variables"]))
    outputs = list(_compare_outputs(path, references.exportable.model, found, called))
    if not found["calls"] and (unknown := [each for each in found["variables"] if each not in references.variables]):
        raise ReleaseError(
            f"{len(unknown)} of the {len(found['variables'])} variables of {path.name} are not those of the "
            f"checkpoint. {_NO_RELEASE}"
        )
    if "rejected" in found:
        outputs = [
            f"no outputs: no batch of the job fits the signature, and generated inputs fail ({found['rejected']})"
        ]
    return ", ".join(
        [counted(len(found["variables"]), "variable"), *outputs, *_compare_figures(path, found, references.figures)]
    )


def _load_alone(path: Path, task: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """Load a release in a process of its own. Returns what that reports."""
    file.write_text(json.dumps(task))
    done = subprocess.run(
        [sys.executable, "-I", str(_SCRIPT), str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=file.parent,
    )
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ReleaseError(f"the process that loads {path.name} failed: {why[0]}\n{_NO_RELEASE}")
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert not found["trainerd"]
    if "load_error" in found:
        without = " --format savedmodel writes a model that loads without code." if task["format"] == "keras" else ""
        raise ReleaseError(
            f"{path.name} does not load in a process that does not have the job's code: {found['load_error']}\n"
            f"{_NO_RELEASE}{without}"
        )
    if "call_error" in found:
        raise ReleaseError(
            f"{path.name} loads, but fails with an example that the model takes: {found['call_error']}\n{_NO_RELEASE}"
        )
    return found


def _require_all(path: Path, form: str, model: Sequence[tuple[str, str]], held: Counter[str]) -> None:
    """Require that a release holds each variable of the model; of two that are equal, both."""
    lacking = []
    for name, content in model:
        if not held[content]:
            lacking.append(name)
        held[content] -= 1
    _require_none(path, form, lacking, len(model))


def _require_none(path: Path, form: str, lacking: Sequence[str], count: int) -> None:
    if not lacking:
        return
    names = ", ".join(lacking[:_NAMED]) + (", …" if len(lacking) > _NAMED else "")
    other = "" if form == "savedmodel" else " --format savedmodel may work."
    raise ReleaseError(
        f"{path.name} lacks {len(lacking)} of the model's {count} variables: {names}. {_NO_RELEASE}\n"
        "Make each variable with `add_weight` of a layer, and keep each layer in an attribute whose name does not "
        f"begin with `_`: Keras writes these.{other}"
    )


def _verify_weights(path: Path, exportable: Exportable) -> str:
    """Load a file of weights into the model, after every element of its variables is changed."""
    variables = model_variables(exportable)
    before = [_value(each) for _, each in variables]
    try:
        for (_, each), value in zip(variables, before, strict=True):
            each.assign(_other(value))
        exportable.model.load_weights(str(path))
        lacking = [
            name for (name, each), value in zip(variables, before, strict=True) if digest(_value(each)) != digest(value)
        ]
    except Exception as error:
        raise ReleaseError(f"{path.name} cannot be loaded into the model: {said(error)}\n{_NO_RELEASE}") from error
    finally:
        for (_, each), value in zip(variables, before, strict=True):
            each.assign(value)
    _require_none(path, "weights", lacking, len(variables))
    return counted(len(variables), "variable")


def _other(value: Any) -> Any:
    """Return an array that differs in every element, with values that every type has."""
    return np.where(value == np.zeros((), value.dtype), 1, 0).astype(value.dtype)


def _compare_outputs(path: Path, model: Any, found: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Compare the outputs of a release with the model's for the same inputs."""
    furthest = None
    for number in range(found["calls"]):
        inputs, outputs = next(iter(tf.data.Dataset.load(str(folder / str(number)))))
        expected = model(inputs, training=False)
        furthest = max(furthest or 0.0, worst(tf.nest.flatten(expected, expand_composites=True), outputs))
    if furthest is None:
        return
    if not furthest <= TOLERANCE:
        raise ReleaseError(
            f"the outputs of {path.name}, loaded again, differ from those of the checkpoint by up to {furthest:.3g} "
            f"times the largest output. {_NO_RELEASE}"
        )
    same = f"outputs to {furthest:.1g} of the largest" if furthest else "outputs bit for bit"
    if "made" in found:
        same += f", on generated inputs: no batch of the job fits the signature ({found['made']})"
    yield same


def worst(ones: Sequence[Any], others: Sequence[Any]) -> float:
    """Return the largest difference of two lists of tensors, as a share of the largest number in them."""
    found = 0.0
    for one, other in zip(map(np.asarray, ones), map(np.asarray, others), strict=True):
        if one.shape != other.shape:
            return math.inf
        if one.dtype == object:
            found = max(found, 0.0 if one.tolist() == other.tolist() else math.inf)
            continue
        one, other = one.astype(np.float64), other.astype(np.float64)
        if (np.isnan(one) != np.isnan(other)).any():
            return math.inf
        scale = max(1e-6, float(np.nanmax(np.abs(one), initial=0.0)))
        found = max(found, float(np.nanmax(np.abs(one - other), initial=0.0)) / scale)
    return found


def _compare_figures(path: Path, found: Mapping[str, Any], figures: Mapping[str, float]) -> Iterator[str]:
    for name, value in found.get("figures", {}).items():
        expected = figures.get(name, value)
        if not math.isclose(value, expected, rel_tol=TOLERANCE, abs_tol=1e-6):
            raise ReleaseError(f"{path.name}, loaded again, has {name} {value:g}, and the checkpoint has {expected:g}.")
        yield f"{name} {value:.5g}"


def _save_examples(exportable: Exportable, folder: Path) -> list[str]:
    """Save inputs that the model takes. Returns the folder of each."""
    saved = []
    examples = exportable.examples(BATCHES) if exportable.model is not None else []
    for number, inputs in enumerate(examples):
        try:
            exportable.model(inputs, training=False)
        except Exception:  # the dataset gives something else than the model takes
            continue
        path = str(folder / f"example-{number}")
        tf.data.Dataset.from_tensors(saved_form(inputs)).save(path)
        saved.append(path)
    return saved


def _save_validation(exportable: Exportable, folder: Path) -> str:
    """Save the data of the validation. Returns where; "" if there are none."""
    if exportable.validation is None:
        return ""
    x, y, weights = exportable.validation
    if isinstance(x, tf.data.Dataset):
        data = x
    else:
        parts = tuple(tuple(part) if isinstance(part, list) else part for part in (x, y, weights) if part is not None)
        data = tf.data.Dataset.from_tensor_slices(parts).batch(32)
    if exportable.validation_steps is not None:
        data = data.take(exportable.validation_steps)
    if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
        return ""
    data.save(str(folder))
    return str(folder)
