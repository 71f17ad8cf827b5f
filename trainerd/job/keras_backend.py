"""The backend of Keras: trainerd trains on TensorFlow alone."""

from __future__ import annotations

import os
import sys

from trainerd.errors import BackendError

_VARIABLE, _OURS = "KERAS_BACKEND", "tensorflow"


def require_tensorflow() -> None:
    """Refuse another backend of Keras. Keras itself is not imported: the backend's own package may be missing.

    Raises:
      BackendError: Keras runs on JAX or PyTorch, say.
    """
    keras = sys.modules.get("keras")
    backend = os.environ.get(_VARIABLE) if keras is None else keras.config.backend()
    if backend and backend != _OURS:
        raise BackendError(
            f"Keras's backend is {backend!r}, and trainerd trains Keras models on TensorFlow alone: set "
            f"{_VARIABLE}={_OURS} in the environment."
        )
