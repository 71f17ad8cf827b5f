"""The step of a `fit`, and whether that still runs: of what becomes of them Keras tells a callback nothing."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(frozen=True)
class NotedStep:
    """A step whose end somebody takes note of: callbacks that are told of it earlier may fail.

    Attributes:
      model: whose step it is.
      train: what does it, as `model.train_function` did before.
      noted: called with that and an iterator in its place.
      is_over: whether nobody takes note any more. Asked, who finds that its `fit` was left by an error ends it.
    """

    model: Any
    train: Any
    noted: Callable[[Any, Any], Any]
    is_over: Callable[[], bool]

    def __call__(self, iterator: Any) -> Any:
        """A step."""
        return self.noted(self.train, iterator)


def running_fit() -> FrameType | None:
    """The frame of the `fit` that calls this; None where a program calls callbacks in a loop of its own."""
    frame = inspect.currentframe()
    while frame is not None and not _is_fit(frame):
        frame = frame.f_back
    return frame


def _is_fit(frame: FrameType) -> bool:
    return frame.f_code.co_name == "fit" and frame.f_globals.get("__name__", "").split(".")[0] == "keras"


def runs_on(thread: threading.Thread, fit: FrameType | None) -> bool:
    """Whether a `fit` still runs on a thread, by its frame; where that is not known, whether the thread still does."""
    if not thread.is_alive() or thread.ident is None:
        return False
    return fit is None or is_below(sys._current_frames().get(thread.ident), fit)


def is_below(frame: FrameType | None, caller: FrameType) -> bool:
    """Whether a frame was called by another, or by what that has called."""
    while frame is not None and frame is not caller:
        frame = frame.f_back
    return frame is caller
