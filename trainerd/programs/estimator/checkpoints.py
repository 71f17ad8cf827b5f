"""The checkpoints that an Estimator reads: none that does not verify."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from trainerd.checkpoints import manifest
from trainerd.checkpoints.manifest import DamagedError
from trainerd.errors import DataError
from trainerd.programs.estimator.keras_layers import CURE, is_of_keras_3
from trainerd.rundir.paths import RunDirectory


def step_of(prefix: str | None) -> int:
    """Return the step in the name of a checkpoint; 0 if it has none."""
    step = (prefix or "").rpartition("-")[2]
    return int(step) if step.isdigit() else 0


def rundir_of(prefix: str) -> RunDirectory:
    """Return the run directory that a checkpoint is in."""
    path = Path(prefix)
    return RunDirectory.of(str(path.parent), path.name.rpartition("-")[0] or path.name)


def require_whole(prefix: str) -> None:
    """Raise DataError if a checkpoint is not there, or does not verify."""
    rundir, step = rundir_of(prefix), step_of(prefix)
    if rundir.manifest(step).exists():
        try:
            manifest.verify(manifest.read(rundir.manifest(step)), rundir.path)
        except DamagedError as error:
            raise DataError(f"{prefix} cannot be read: {error}") from error
    elif not tf.compat.v1.train.checkpoint_exists(prefix):
        raise DataError(f"there is no checkpoint {prefix}.")


def is_whole(prefix: str) -> bool:
    """Return whether a checkpoint is there, and verifies."""
    try:
        require_whole(prefix)
    except DataError:
        return False
    return True


def require_fit(prefix: str) -> None:
    """Raise ValueError if a variable of the default graph has another shape in a checkpoint, or Keras 3 renamed it."""
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    for variable in tf.compat.v1.global_variables():
        there = shapes.get(variable.op.name)
        if there is None and is_of_keras_3(variable):
            raise ValueError(f"{prefix} has no variable {variable.op.name}. {CURE}")
        if there is not None and not variable.shape.is_compatible_with(there):
            raise ValueError(
                f"the variable {variable.op.name} has the shape {there} in {prefix}, and {variable.shape.as_list()} "
                "here: does this input have other shapes than that of the training?"
            )
