"""The hook that logs values of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.programs.hooks.base import Timed, Timer, values_at_the_end

tf1 = tf.compat.v1


class LoggingTensorHook(Timed):
    """Logs values every N steps, every N seconds, or at the end; see `tf.compat.v1.train.LoggingTensorHook`.

    Args:
      tensors: what to log, or a dict of tag to that.
      every_n_iter, every_n_secs: how often; one of them, unless it is at the end alone.
      at_end: whether at the end too.
      formatter: from a dict of tag to value to the line.

    Raises:
      ValueError: the arguments set no schedule, or two.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError("either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.")
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        self._tensors = dict(sorted(tensors.items())) if isinstance(tensors, Mapping) else _tagged(tensors)
        self._timer = None if only_at_end else Timer(every_n_secs, every_n_iter)
        self._at_end = at_end
        self._formatter = formatter

    def begin(self) -> None:
        """Start over, since a session begins."""
        if self._timer is not None:
            self._timer.reset()

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext) -> tf.compat.v1.train.SessionRunArgs:
        """Ask for the values."""
        return tf1.train.SessionRunArgs(self._tensors)

    def _act(self, step: int, run_values: Any, secs: float | None, steps: int) -> None:
        self._log(run_values.results, secs)

    def end(self, session: Any) -> None:
        """Log the last ones."""
        if self._at_end and (values := values_at_the_end(session, self._tensors, {})) is not None:
            self._log(values, None)

    def _log(self, values: dict[str, Any], elapsed: float | None) -> None:
        if self._formatter is not None:
            tf1.logging.info(self._formatter(values))
            return
        with np.printoptions(suppress=True):
            text = ", ".join(f"{tag} = {values[tag]}" for tag in self._tensors)
        tf1.logging.info("%s", text if elapsed is None else f"{text} ({elapsed:.3f} sec)")


def _tagged(tensors: Iterable[Any]) -> dict[str, Any]:
    """Return each value under a tag, which is its name. Variables of the same name get a number."""
    found: dict[str, Any] = {}
    for tensor in tensors:
        name = tensor if isinstance(tensor, str) else getattr(tensor, "name", getattr(tensor, "__name__", str(tensor)))
        found[name if name not in found else f"{name}_{len(found)}"] = tensor
    return found
