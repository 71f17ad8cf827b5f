"""The call of `fit` that runs, by its frame: Keras does not call a callback when an error ends a `fit`."""

from __future__ import annotations

import inspect
import sys
import threading
from types import FrameType
from typing import Any


class FitCall:
    """The call of `fit` that makes this object, on the thread that does.

    Attributes:
      thread: the thread that it runs on.
    """

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self._frame = _running_fit()

    @property
    def callbacks(self) -> list[Any]:
        """The callbacks of the `fit`; none if a program calls them itself."""
        return list(getattr(self.argument("callbacks"), "callbacks", ()))

    def argument(self, name: str) -> Any:
        """Return an argument of the `fit`; None if it has none of that name, or if a program calls the callbacks
        itself."""
        return self._frame.f_locals.get(name) if self._frame is not None else None

    @property
    def is_on_this_thread(self) -> bool:
        """True if it is on the thread that asks."""
        return self.thread is threading.current_thread()

    @property
    def runs_elsewhere(self) -> bool:
        """True if it runs on another thread. If a program calls the callbacks itself: whether that thread lives."""
        if self.is_on_this_thread or not self.thread.is_alive() or self.thread.ident is None:
            return False
        return self._frame is None or _is_below(sys._current_frames().get(self.thread.ident), self._frame)

    def was_left(self, frame: FrameType | None = None) -> bool:
        """Return whether it has ended: it calls neither this method nor that frame."""
        if self._frame is None or self.runs_elsewhere:
            return False
        return not _is_below(frame or inspect.currentframe(), self._frame)


def _running_fit() -> FrameType | None:
    """Return the frame of the `fit` that calls this; None if a program calls callbacks in a loop of its own."""
    frame = inspect.currentframe()
    while frame is not None and not _is_fit(frame):
        frame = frame.f_back
    return frame


def _is_fit(frame: FrameType) -> bool:
    return frame.f_code.co_name == "fit" and frame.f_globals.get("__name__", "").split(".")[0] == "keras"


def _is_below(frame: FrameType | None, caller: FrameType) -> bool:
    """Return whether a frame was called by another, directly or not."""
    while frame is not None and frame is not caller:
        frame = frame.f_back
    return frame is caller
