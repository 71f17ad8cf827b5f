"""The data and the weights of a call of `fit`, in a few words: a complete call is compared with them at a new start."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
import xxhash

from trainerd.config.fingerprint import ELEMENTS, PIPELINE, Fingerprint, FingerprintDifference, differences
from trainerd.errors import DataError
from trainerd.job.definition import KerasJob
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.input import pipeline
from trainerd.sessions.keras.progress import CallHistory

log = logging.getLogger(__name__)

_EXAMPLES = "input.examples"  # of arrays
_WEIGHTS = "model.weights"


@dataclass(frozen=True)
class CallData:
    """The data of a call of `fit`, and how it is compared.

    Attributes:
      rundir: the run directory.
      description: describes the data, as a part of a fingerprint. Empty if its position cannot be saved.
      is_compared: whether other data is refused.
    """

    rundir: RunDirectory
    description: Fingerprint = field(default_factory=dict)
    is_compared: bool = True

    def of(self, model: Any) -> Fingerprint:
        """Return the description, with the weights of the model, which is built."""
        return {**self.description, _WEIGHTS: _described_weights(model)}

    def require_same(self, number: int, ended: CallHistory, model: Any) -> None:
        """Refuse a complete call that is given other data now, or a model with other weights.

        What a call that is resumed may change (see `run.resume`), this one may change too. The number of examples may
        differ: a script may choose them with the model, and sees other weights than before after earlier calls.

        Args:
          number: of the call, from 0.
          ended: its record. One of an older version does not describe its data.
          model: the model that it is given now. It is built.

        Raises:
          DataError: it is given something else.
        """
        if not (before := ended.get("data")):
            return
        changes = differences(before, self.of(model))
        refused = [each for each in changes if self._refuses(each)]
        if not refused:
            for each in changes:
                log.info("changed since call %d of fit was completed: %s", number + 1, each, extra={"event": "changed"})
            return
        what = "a model with other weights" if refused[0].name == _WEIGHTS else "other data"
        accept = "."
        if what == "other data":
            accept = f"; or `touch {self.rundir.accept_changes}` before the start to pass over the call all the same."
        name = f" (name={ended['name']!r})" if ended.get("name") is not None else ""
        raise DataError(
            f"call {number + 1} of fit in this run{name} is complete, and now it is given {what}: "
            + "\n  ".join(map(str, refused))
            + f"\nPut the call back as it was, or use another `logdir`{accept}"
        )

    def _refuses(self, change: FingerprintDifference) -> bool:
        if change.before is None or change.now is None:
            return False
        if change.name == _WEIGHTS:
            return True
        return self.is_compared and change.moves_position


def describe_data(job: KerasJob) -> Fingerprint:
    """Describe the data of a job, without reading it."""
    if isinstance(job.data, tf.data.Dataset):
        return pipeline.outline([job.data])
    arrays = [each for each in tf.nest.flatten(job.data) if each is not None]
    shapes = [list(getattr(each, "shape", ())) for each in arrays]
    specs = [f"{_dtype_of(each)}{[None, *shape[1:]]}" for each, shape in zip(arrays, shapes, strict=True)]
    return {
        ELEMENTS: ", ".join(specs),
        PIPELINE: f"arrays(batch_size={job.batch_size}, shuffle={bool(job.shuffle)})",
        _EXAMPLES: ", ".join(dict.fromkeys(str(shape[0]) for shape in shapes if shape)),
    }


def _dtype_of(array: Any) -> str:
    """Return the name of the type with which an array is trained."""
    given = getattr(array, "dtype", type(array))
    try:
        dtype = tf.as_dtype(given)
    except TypeError:  # of another library
        return str(given)
    return str(keras.backend.floatx() if dtype.is_floating else dtype.name)


def _described_weights(model: Any) -> str:
    """Describe the weights by number and shape. Keras numbers their names: they differ at each run of a cell."""
    shapes = sorted((list(map(int, each.shape)), str(each.dtype)) for each in model.weights)
    digest = xxhash.xxh3_64_hexdigest(repr(shapes).encode())
    return f"{len(shapes)} with {sum(math.prod(shape) for shape, _ in shapes)} numbers, {digest}"
