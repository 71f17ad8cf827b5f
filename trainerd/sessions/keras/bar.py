"""Keras's own progress bar, for steps that run in the graph."""

from __future__ import annotations

from typing import Any

import keras

from trainerd.rundir.state import Phase, State


class Bar:
    """Shows each epoch as `fit` does. It is drawn when the state is reported, and at the end of an epoch.

    Args:
      verbose: 1: a bar; 2: a line for each epoch.
    """

    def __init__(self, verbose: int) -> None:
        self._verbose = verbose
        self._bar: Any = None
        self._began = 0
        self._epoch: int | None = None

    def begin(self, epoch: int, epochs: int, began: int, steps: int | None) -> None:
        """Begin an epoch, or resume in it. A second call for the same epoch does nothing.

        Args:
          epoch: its number, from 0.
          epochs: how many there are.
          began: the global step at which it began.
          steps: how many it has; None if that is unknown.
        """
        if epoch == self._epoch:
            return
        self._epoch, self._began = epoch, began
        print(f"Epoch {epoch + 1}/{epochs}", flush=True)
        self._bar = keras.utils.Progbar(steps, verbose=self._verbose, unit_name="step")

    def observe(self, state: State) -> None:
        """Draw how far the epoch has come; end the line of a run that is paused."""
        done = state.step - self._began
        if self._bar is None or done <= 0 or not (state.phase is Phase.TRAINING or state.phase.is_over):
            return
        self._draw(done, state.metrics, is_over=False)
        if state.phase.is_over:  # what is printed next is on a line of its own
            print(flush=True)
            self._bar = None

    def end(self, steps: int, logs: dict[str, Any]) -> None:
        """Show the metrics of an epoch that has ended after so many steps."""
        if self._bar is not None:
            self._draw(steps, logs, is_over=True)
            self._bar = None

    def _draw(self, done: int, metrics: Any, *, is_over: bool) -> None:
        shown = [(name, value) for name, value in metrics.items() if is_over or not name.startswith(("val_", "epoch"))]
        self._bar.stateful_metrics.update(name for name, _ in shown)  # the bar takes means of others
        self._bar.update(done, shown, finalize=is_over)
