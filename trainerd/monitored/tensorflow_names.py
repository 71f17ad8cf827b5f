"""TensorFlow's private names for the layers of a MonitoredSession."""

from __future__ import annotations

from typing import Any, NamedTuple

from trainerd.sessions.tf1.session import ManagedSession


class Around:
    """One of the sessions that TensorFlow wraps in a monitored one, each in the `_sess` of the next."""

    def __init__(self, session: Any) -> None:
        self._sess = session

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what `copy` asks for, of an object that has nothing yet
            raise AttributeError(name)
        return getattr(self._sess, name)


class Within(NamedTuple):
    """The layers that programs look for within a monitored session."""

    tf_sess: ManagedSession | None
    coord: Any
