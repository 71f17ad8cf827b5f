"""A worker that is not the chief: it does what the chief says, and passes on what it is asked for itself."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainerd.errors import PeerFailedError, PeerLostError, TrainerdError, exit_code_of, headline
from trainerd.loop.outcome import Outcome
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Answer, LastCheckpoint, Phase
from trainerd.workers.chief import FAILURE_SECS
from trainerd.workers.peer import Message, Peer

log = logging.getLogger(__name__)

Commands = Mapping[str, Callable[[Message], Mapping[str, Any]]]


class Worker:
    """Obeys the chief.

    Args:
      peer: the chief.
      reporter: shows what the chief says of the run.
      abort: ends what this process and the others do together, from any thread.
      received: takes a piece of a file.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        reporter: Reporter,
        abort: Callable[[str], None],
        received: Callable[[Message], None],
    ) -> None:
        self._peer = peer
        self._reporter = reporter
        self._abort = abort
        self._received = received
        self._commands: queue.SimpleQueue[tuple[str, Message]] = queue.SimpleQueue()
        self._outcome: Outcome | None = None
        self._trouble: TrainerdError | None = None
        self._is_troubled = threading.Event()
        peer.listen(self._heard, self._lost)

    def serve(
        self, commands: Commands, *, until: str = "", leaves: Callable[[], bool] = lambda: False
    ) -> Outcome | None:
        """Do what the chief says, until it says that the run is over.

        Args:
          commands: what to do for each of them; returns the answer.
          until: the command after which to return, if there is one.
          leaves: whether to leave instead of waiting for a command.

        Returns:
          How the run has ended; None after `until`, or if this worker leaves.

        Raises:
          PeerLostError: the chief is gone.
          PeerFailedError: the chief or another worker has failed.
        """
        while True:
            found = self._next(leaves)
            if found is None:
                return self._outcome
            command, message = found
            self._peer.send("answer", **commands[command](message))
            if command == until:
                return None

    def _next(self, leaves: Callable[[], bool]) -> tuple[str, Message] | None:
        while not leaves():
            try:
                return self._commands.get(timeout=0.1)
            except queue.Empty:
                if self._trouble is not None:
                    raise self._trouble from None
                if self._outcome is not None:
                    return None
        return None

    def explain(self) -> None:
        """Something that all do together has failed here: raise what has caused it elsewhere, if that is known soon.

        Raises:
          PeerLostError, PeerFailedError: see `serve`.
        """
        self._is_troubled.wait(FAILURE_SECS)
        self.raise_trouble()

    def raise_trouble(self) -> None:
        """Raise what has become of the others, if anything has.

        Raises:
          PeerLostError, PeerFailedError: see `serve`.
        """
        if self._trouble is not None:
            raise self._trouble

    @property
    def is_connected(self) -> bool:
        """Whether the chief can be told anything."""
        return not self._peer.is_gone

    def ask(self, what: str, **fields: Any) -> None:
        """Pass on what this worker was asked for."""
        self._peer.tell(what, **fields)

    def tell_state(self, **fields: Any) -> None:
        """Tell the chief how this worker is."""
        self._peer.tell("state", state={"seen_at": time.time(), **fields})

    def failed(self, error: BaseException) -> None:
        """Tell the chief that this worker fails: all end."""
        if self._trouble is None:
            self._peer.tell("failed", why=headline(error), code=exit_code_of(error))

    def close(self) -> None:
        """End the connection."""
        self._peer.close()

    def _heard(self, kind: str, message: Message) -> None:
        if kind == "state":
            self._show(message["state"])
        elif kind == "file":
            self._received(message)
        elif kind == "end" and message["phase"] == Phase.FAILED:
            self._stop(PeerFailedError(f"the run ends on all workers: {message['why']}", int(message["code"])))
        elif kind == "end":
            self._outcome = Outcome(Phase(message["phase"]), message["why"])
        else:
            self._commands.put((kind, message))

    def _lost(self, why: str) -> None:
        if self._outcome is None:
            self._stop(PeerLostError(why))

    def _stop(self, error: TrainerdError) -> None:
        if self._trouble is None:
            self._trouble = error
            self._is_troubled.set()
            self._abort(str(error))

    def _show(self, state: Message) -> None:
        """Show the run as the chief sees it."""
        last, answer = state["last_checkpoint"], state["answer"]
        self._reporter.update(
            phase=Phase(state["phase"]),
            step=state["step"],
            max_steps=state["max_steps"],
            metrics={name: float("nan") if value is None else value for name, value in state["metrics"].items()},
            steps_per_sec=state["steps_per_sec"],
            last_checkpoint=LastCheckpoint(**last) if last else None,
            saving=state["saving"],
            answer=Answer(**answer) if answer else None,
        )
