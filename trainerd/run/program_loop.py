"""The loop that a program writes, as its run sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType


@dataclass(frozen=True)
class LibraryLoop:
    """A loop that the program does not write itself, such as that of `fit`. Nothing reports an error that ends it.

    Attributes:
      was_left: whether the loop has ended, asked where this frame runs.
      end: saves what is sound of it, and leaves; called with the error that has ended it, if that is known.
    """

    was_left: Callable[[FrameType | None], bool]
    end: Callable[[BaseException | None], None]


@dataclass(frozen=True)
class ProgramLoop:
    """The interface of a loop that is not trainerd's, as its run calls it.

    Attributes:
      stop: ends the loop; called with None for a pause, and with the error if a service failed.
      should_stop: whether the loop is to end.
      raise_requested: raises the error that stopped the loop, if there was one.
      saving: called with the step when a checkpoint is begun.
      before_save: called with the step before its state is taken.
      saved: called with the step when a checkpoint is there.
      saves_at_end: whether the last step is saved without a request.
      metrics_steps: steps between two points of the metrics' curves; 0 for none by steps.
      loss: the metric whose minima are kept; "" for none.
      library: the loop, if a library has it; None if it is the program's own.
    """

    stop: Callable[[BaseException | None], None]
    should_stop: Callable[[], bool] = lambda: False
    raise_requested: Callable[[], None] = lambda: None
    saving: Callable[[int], None] = lambda step: None
    before_save: Callable[[int], None] = lambda step: None
    saved: Callable[[int], None] = lambda step: None
    saves_at_end: bool = True
    metrics_steps: int = 0
    loss: str = ""
    library: LibraryLoop | None = None
