"""How a session with hooks ends: the same for graphs and for functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from trainerd.managed.failures import is_clean
from trainerd.monitored.step_context import CLOSED


class Lifecycle(ABC):
    """A session with hooks that a `with` statement closes. The end of the input is a clean end.

    At its end: each hook's `end`, the checkpoint, the threads, and the run directory is given back. What is first
    raised is how the run has ended; what comes after it is done all the same.
    """

    _managed: Any
    _hooks: list[Any]
    _has_ended = False

    def close(self) -> None:
        """End each hook, save, and close the session.

        Raises:
          RuntimeError: it is closed already.
        """
        self._close(None)

    def __enter__(self) -> Self:
        self._managed.is_within = True
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if error is not None and is_clean(error):
            error = None
        self._close(error)
        return error is None

    def _require_open(self) -> None:
        if self._has_ended:
            raise RuntimeError(CLOSED)

    def _close(self, error: BaseException | None) -> None:
        """Close the session, for this error if there was one."""
        self._require_open()
        ending = error
        try:
            if error is None:
                self._end_hooks()
        except BaseException as raised:
            ending = raised
            raise
        finally:
            self._has_ended = True
            self._save_and_join(ending)

    def _save_and_join(self, error: BaseException | None) -> None:
        try:
            self._save(error)
        except BaseException as raised:
            error = raised
            raise
        finally:
            try:
                self._close_session()
            except BaseException as raised:
                error = error or raised
                raise
            finally:
                self._managed.leave(error)

    @abstractmethod
    def _end_hooks(self) -> None:
        """Call each hook's `end`."""

    @abstractmethod
    def _save(self, error: BaseException | None) -> None:
        """Save what is sound."""

    @abstractmethod
    def _close_session(self) -> None:
        """Stop the threads, join them, and close the session."""
