"""How a session with hooks ends: the same for graphs and for functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from trainerd.managed.failures import is_clean


class Closing(ABC):
    """A session that a `with` statement closes. The end of the input is a clean end."""

    _managed: Any

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

    @abstractmethod
    def _close(self, error: BaseException | None) -> None:
        """Close the session, for this error if there was one."""
