"""The session that hooks of TensorFlow get, over functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainerd.sessions.tf2.session import StepSession, as_numpy


class HookSession:
    """The session as hooks see it. Their own runs in it do not count as steps.

    Args:
      session: runs the steps.
      should_stop: whether the program's loop is to end.

    Attributes:
      last: what the last step returned.
      has_run: whether a step was run.
    """

    def __init__(self, session: StepSession, should_stop: Callable[[], bool]) -> None:
        self._session = session
        self.should_stop = should_stop
        self.last: Any = None
        self.has_run = False

    def ran(self, last: Any) -> None:
        """Record that steps were run, and what the last one has returned."""
        self.last, self.has_run = last, True

    @property
    def step(self) -> int:
        """The global step."""
        return self._session.step

    def run(self, fetches: Any, feed_dict: Mapping[str, Any] | None = None) -> Any:
        """Return values that the last step returned, variables, and results of functions, in any structure.

        Args:
          fetches: the names, variables and functions.
          feed_dict: the functions' arguments by name.

        Raises:
          ValueError: the step returned nothing of that name.
        """
        return tf.nest.map_structure(lambda part: self._one(part, feed_dict or {}), fetches)

    def _one(self, fetch: Any, feeds: Mapping[str, Any]) -> Any:
        if isinstance(fetch, str):
            found = self.last if isinstance(self.last, Mapping) else {"loss": self.last}
            if fetch not in found:
                raise ValueError(f"the step function returned nothing named {fetch!r}, but {sorted(found)}.")
            return found[fetch]
        return as_numpy(fetch(**feeds) if callable(fetch) and not hasattr(fetch, "dtype") else fetch)
