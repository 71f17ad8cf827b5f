"""Verifies a release: a process without trainerd loads it, and must get from it what the checkpoint gives."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.errors import ReleaseError
from trainerd.loop.contract import Exportable

BATCHES = 4
TOLERANCE = 1e-4  # as a share of the largest number: another process may take other kernels
_SCRIPT = Path(__file__).with_name("alone.py")


@dataclass(frozen=True)
class References:
    """What the model of the checkpoint gives.

    Attributes:
      folder: has the batches, with the outputs; "" if the model cannot be called.
      structure: of the inputs: lists and dicts of numbers, which say where each of the arrays goes.
      validation: a saved dataset to evaluate with; "" if there is none.
      figures: what that evaluation gave.
      variables: a digest of the bytes of every variable.
    """

    folder: str
    structure: Any
    validation: str
    figures: Mapping[str, float]
    variables: list[str]


def references_of(
    exportable: Exportable, state: Mapping[str, bytes], figures: Mapping[str, float], folder: Path
) -> References:
    """Put into a folder what the model gives now.

    Args:
      exportable: the model and its data.
      state: the bytes of the variables of the checkpoint, by name.
      figures: of its evaluation.
      folder: an empty folder.
    """
    structure = _save_batches(exportable, folder)
    validation = _save_validation(exportable, folder / "validation")
    digests = [hashlib.blake2b(value).hexdigest() for value in state.values()]
    return References(str(folder) if structure is not None else "", structure, validation, figures, digests)


def verify(path: Path, form: str, references: References, folder: Path) -> str:
    """Load a file or folder of a release in a process of its own, and compare.

    Args:
      path: what is loaded.
      form: "savedmodel", "keras" or "weights".
      references: what it must give.
      folder: for the file that tells the process what to do.

    Returns:
      What was compared, for `release.json`.

    Raises:
      ReleaseError: it does not load, or gives something else.
    """
    task = folder / f"{form}.json"
    task.write_text(
        json.dumps(
            {
                "format": form,
                "path": str(path),
                "batches": references.folder,
                "structure": references.structure,
                "validation": references.validation,
                "variables": references.variables,
            }
        )
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-I", str(_SCRIPT), str(task)], capture_output=True, text=True, env=environment, cwd=folder
    )
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ReleaseError(
            f"{path.name} does not load in a process that does not have the job's code: {why[0]}\n"
            "There is no release. A custom layer needs @keras.saving.register_keras_serializable and its module there; "
            "a SavedModel does without: --format savedmodel."
        )
    return _compared(path, json.loads(done.stdout.splitlines()[-1]), references)


def _compared(path: Path, found: Mapping[str, Any], references: References) -> str:
    assert not found["trainerd"]
    if found.get("unknown"):
        raise ReleaseError(
            f"{found['unknown']} of the {found['variables']} variables of {path.name} are not those of the checkpoint. "
            "There is no release."
        )
    said = []
    if "variables" in found:
        said.append(f"{found['variables']} variables")
    if "outputs" in found and references.folder:
        if not found["outputs"] <= TOLERANCE:
            raise ReleaseError(
                f"the outputs of {path.name}, loaded again, differ from the checkpoint's by {found['outputs']:.3g} of "
                "the largest. There is no release."
            )
        said.append(
            f"outputs, to {found['outputs']:.1g} of the largest" if found["outputs"] else "outputs, bit for bit"
        )
    for name, value in found.get("figures", {}).items():
        expected = references.figures.get(name, value)
        if not math.isclose(value, expected, rel_tol=TOLERANCE, abs_tol=1e-6):
            raise ReleaseError(f"{path.name}, loaded again, has {name} {value:g}, and the checkpoint has {expected:g}.")
        said.append(f"{name} {value:.5g}")
    return ", ".join(said) or "that it loads"


def _save_batches(exportable: Exportable, folder: Path) -> Any:
    """Save inputs and outputs of the model. Returns the structure of the inputs; None if there are none."""
    structure = None
    examples = exportable.examples(BATCHES) if exportable.model is not None else []
    for number, inputs in enumerate(examples):
        try:
            outputs = exportable.model(inputs, training=False)
        except (ValueError, TypeError, tf.errors.OpError):  # the dataset gives something else than the model takes
            return None
        places = iter(range(len(tf.nest.flatten(inputs))))
        structure = _as_json(tf.nest.map_structure(lambda leaf: next(places), inputs))  # noqa: B023
        arrays = {f"in_{n}": np.asarray(each) for n, each in enumerate(tf.nest.flatten(inputs))}
        arrays |= {f"out_{n}": np.asarray(each) for n, each in enumerate(tf.nest.flatten(outputs))}
        np.savez(folder / f"batch-{number}.npz", **arrays)  # type: ignore[arg-type]
    return structure


def _as_json(structure: Any) -> Any:
    """A structure of numbers as JSON has it."""
    if isinstance(structure, Mapping):
        return {name: _as_json(part) for name, part in structure.items()}
    return [_as_json(part) for part in structure] if isinstance(structure, list | tuple) else structure


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
