"""TensorFlow's private names for the layers of a MonitoredSession."""

from __future__ import annotations

from typing import Any, NamedTuple

from trainerd.sessions.tf1.session import ManagedSession


class Around:
    """Stands for one of the sessions that TensorFlow has within a monitored one, each in the next one's `_sess`."""

    def __init__(self, session: Any) -> None:
        self._sess = session

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what `copy` asks for, of an object that has nothing yet
            raise AttributeError(name)
        return getattr(self._sess, name)


class Within(NamedTuple):
    """What programs look for within a monitored session."""

    tf_sess: ManagedSession | None
    coord: Any
