"""The public names for programs with a Keras model: `fit`, what is between two calls of it, and what keeps
Keras's own `model.fit`.

For a Keras model under the daemon's own loop there is `trainerd.KerasJob`.
"""

from __future__ import annotations

from trainerd.loop.outcome import Paused
from trainerd.programs.keras.between import evaluate, predict
from trainerd.programs.keras.fit import fit
from trainerd.programs.keras.supervise import Supervise

__all__ = ["Paused", "Supervise", "evaluate", "fit", "predict"]
