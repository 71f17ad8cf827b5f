"""A service of the user's own: called on a timer, at a boundary."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainerd.run.boundary import Boundary

log = logging.getLogger(__name__)

TIMES_ALONE = 2  # one after the other; once may be the compilation of the first step


class Looper(tf.compat.v1.train.LooperThread):  # type: ignore[misc]
    """Calls a function periodically until the coordinator stops, as `tf.compat.v1.train.LooperThread` does.

    The function is called between two steps, so that all it fetches is of one step. If it waits for steps, or steps
    wait for it, it is called beside them from then on.

    Args:
      coord: the Coordinator, which gets the function's error.
      timer_interval_secs: the time between two calls; None for as often as there is a boundary.
      boundary: the boundary at which it is called; None: on the thread itself.
      target, args, kwargs: what to call.
    """

    def __init__(
        self,
        coord: Any,
        timer_interval_secs: float | None,
        boundary: Boundary | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(coord, timer_interval_secs)
        self._call = lambda: target(*(args or ()), **(kwargs or {}))
        self._boundary = boundary
        self._is_over = coord.should_stop
        self._times_alone = 0

    def run_loop(self) -> None:
        """Call it once."""
        if self._boundary is None:
            self._call()  # type: ignore[no-untyped-call]
            return
        self._times_alone = 0 if self._boundary.call(self._call, self._is_over) else self._times_alone + 1
        if self._times_alone == TIMES_ALONE:
            self._boundary = None
            log.warning(
                "a function of Supervisor.loop is slow, or it and the steps wait for each other. From now on it runs "
                "beside the steps"
            )
