"""The loop that a program writes, as its run sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainerd.loop.outcome import LOOP_ENDED, Outcome


@dataclass(frozen=True)
class ProgramLoop:
    """The interface of a loop that is not trainerd's, as its run calls it.

    Attributes:
      stop: ends the loop; called with None for a pause, and with the error if a service failed.
      should_stop: whether the loop is to end.
      raise_requested: raises the error that stopped the loop, if there was one.
      saving: called with the step when a checkpoint is begun.
      before_save: called with the step before its state is taken; None for nothing.
      saved: called with the step when a checkpoint is there.
      saves_at_end: whether the last step is saved without a request.
      metrics_secs, metrics_steps: between points of the metrics' curves; 0 for none by that. In a program of the daemon
        the daemon's config says it.
      loss: the metric whose minima are kept; "" for none.
      ended: the outcome if the loop ends without another one.
      serves_when_idle: whether another thread serves the flag if the loop does not come to a boundary.
    """

    stop: Callable[[BaseException | None], None]
    should_stop: Callable[[], bool] = lambda: False
    raise_requested: Callable[[], None] = lambda: None
    saving: Callable[[int], None] = lambda step: None
    before_save: Callable[[int], None] | None = None
    saved: Callable[[int], None] = lambda step: None
    saves_at_end: bool = True
    metrics_secs: float = 0
    metrics_steps: int = 0
    loss: str = ""
    ended: Outcome = LOOP_ENDED
    serves_when_idle: bool = True
