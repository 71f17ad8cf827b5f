"""The sessions that hold a run directory in this process. Those that a program leaves open end with the program."""

from __future__ import annotations

import atexit
import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Protocol

from trainerd.errors import TrainerdError
from trainerd.system.process_wide import process_wide

log = logging.getLogger(__name__)


class Opened(Protocol):
    """An open session; its attached run implements this."""

    def close_for_another(self) -> None:
        """End the session if its loop has ended: another session begins in the same run directory."""

    def end(self, error: BaseException | None) -> None:
        """End the session, which the program has left open at its end.

        Args:
          error: the error that ended the program; None if there was none.
        """


_opened = process_wide("open sessions", dict[str, Opened]())


@contextlib.contextmanager
def holding(place: str, session: Opened) -> Iterator[None]:
    """Record that a session holds a run directory while the block runs."""
    _opened[place] = session
    try:
        yield
    finally:
        if _opened.get(place) is session:
            del _opened[place]


def close_for_another(place: str, session: Opened) -> None:
    """Close the earlier session of a run directory, in which this one begins."""
    if (earlier := _opened.get(place)) is not None and earlier is not session:
        earlier.close_for_another()


def left_by_error() -> RuntimeError:
    """Return the error for a loop that was left for an unknown reason."""
    return RuntimeError("its loop was left by an error")


@contextlib.contextmanager
def ended() -> Iterator[None]:
    """End the sessions that the block leaves open, when it ends.

    Raises:
      StorageError: one could not be saved.
    """
    try:
        yield
    except BaseException as error:
        _end(error)
        raise
    _end(None)


def _end(error: BaseException | None) -> None:
    with contextlib.ExitStack() as stack:  # each, whatever becomes of the others
        for session in [*_opened.values()]:
            stack.callback(session.end, error)


@atexit.register
def _end_with_process() -> None:
    try:
        _end(None if hasattr(sys, "ps1") else getattr(sys, "last_value", None))  # at a prompt one may be long past
    except Exception as error:  # the process's exit code cannot be changed any more
        log.error("%s", error, extra={"event": "save-failed"}, exc_info=not isinstance(error, TrainerdError))
