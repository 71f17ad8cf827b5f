"""Layers of Keras 3 in a `model_fn`: they are not made for several graphs in one process."""

from __future__ import annotations

from typing import Any

CURE = (
    "Keras 3 numbers the names of its layers over all graphs of a process, and has no tf.layers: for tf.layers and "
    "tf.keras.layers in a model_fn, install the package tf_keras, and set TF_USE_LEGACY_KERAS=1 in the environment."
)
_NO_LAYERS = "is not available with Keras 3"  # what TensorFlow says of tf.layers


def is_of_keras_3(variable: Any) -> bool:
    """Return whether a variable of a graph was made by Keras 3, and not by tf_keras."""
    return any("/keras/src/" in frame.filename for frame in variable.op.traceback)


def note_cure(error: AttributeError) -> None:
    """Add the cure to an error, if it is that of `tf.layers`."""
    if _NO_LAYERS in str(error):
        error.add_note(CURE)
