"""Evaluations and predictions of a script between its calls of `fit`, which the daemon shows."""

from __future__ import annotations

from typing import Any

import keras

from trainerd.run.host import hosted_phase
from trainerd.rundir.state import Phase


def evaluate(model: keras.Model, *arguments: Any, **options: Any) -> Any:
    """Call `model.evaluate`. The state of the run is `evaluating` meanwhile, if a daemon runs the script.

    Args:
      model: the model, compiled.
      arguments, options: see `keras.Model.evaluate`.

    Returns:
      What `model.evaluate` returns.
    """
    with hosted_phase(Phase.EVALUATING):
        return model.evaluate(*arguments, **options)


def predict(model: keras.Model, *arguments: Any, **options: Any) -> Any:
    """Call `model.predict`. The state of the run is `evaluating` meanwhile, if a daemon runs the script.

    Args:
      model: the model.
      arguments, options: see `keras.Model.predict`.

    Returns:
      What `model.predict` returns.
    """
    with hosted_phase(Phase.EVALUATING):
        return model.predict(*arguments, **options)
