"""A worker that is not the chief: it obeys the chief, and passes on the requests that it gets itself."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainerd.errors import PeerFailedError, PeerLostError, TrainerdError, exit_code_of, headline
from trainerd.loop.outcome import Outcome
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Answer, LastCheckpoint, Phase
from trainerd.workers.peer import Message, Peer
from trainerd.workers.trouble import Trouble

log = logging.getLogger(__name__)

Commands = Mapping[str, Callable[[Message], Mapping[str, Any]]]


class Worker:
    """Obeys the chief.

    Args:
      peer: the chief.
      reporter: shows the state of the run that the chief sends.
      abort: ends what this process and the others do together, from any thread.
      received: takes a piece of a file.

    Attributes:
      trouble: what has become of the others.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        reporter: Reporter,
        abort: Callable[[TrainerdError], None],
        received: Callable[[Message], None],
    ) -> None:
        self._peer = peer
        self._reporter = reporter
        self._abort = abort
        self.trouble = Trouble(abort)
        self._received = received
        self._commands: queue.SimpleQueue[tuple[str, Message]] = queue.SimpleQueue()
        self._outcome: Outcome | None = None
        self._is_busy = False
        peer.listen(self._heard, self._lost)

    def serve(
        self, commands: Commands, *, until: str = "", leaves: Callable[[], bool] = lambda: False
    ) -> Outcome | None:
        """Execute the chief's commands until it says that the run is over.

        Args:
          commands: the function for each of them; it returns the answer.
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
            self._is_busy = True
            try:
                self._peer.send("answer", **commands[command](message))
            except TrainerdError:
                if self._outcome is not None:  # the run has ended meanwhile: it was abandoned
                    return self._outcome
                raise
            self._is_busy = False
            if command == until:
                return None

    def _next(self, leaves: Callable[[], bool]) -> tuple[str, Message] | None:
        while not leaves():
            try:
                return self._commands.get(timeout=0.1)
            except queue.Empty:
                self.trouble.check()
                if self._outcome is not None:
                    return None
        return None

    def be_patient(self, seconds: float) -> None:
        """Count the chief as gone if it says nothing for so many seconds."""
        self._peer.be_patient(seconds)

    @property
    def heard(self) -> float:
        """A number that grows when the chief says anything."""
        return self._peer.heard_at

    @property
    def is_connected(self) -> bool:
        """True if messages can reach the chief."""
        return not self._peer.is_gone

    def ask(self, what: str, **fields: Any) -> None:
        """Pass on a request that this worker got."""
        self._peer.try_send(what, **fields)

    def send_state(self, **fields: Any) -> None:
        """Send the state of this worker to the chief."""
        self._peer.try_send("state", state={"seen_at": time.time(), **fields})

    def failed(self, error: BaseException) -> None:
        """Report to the chief that this worker fails: all end."""
        if self.trouble.error is None:
            self._peer.try_send("failed", why=headline(error), code=exit_code_of(error))

    def close(self) -> None:
        """End the connection."""
        self._peer.close()

    def _heard(self, kind: str, message: Message) -> None:
        if kind == "state":
            self._show(message["state"])
        elif kind == "file":
            self._take(message)
        elif kind == "end" and message["phase"] == Phase.FAILED:
            self.trouble.found(PeerFailedError(f"the run ends on all workers: {message['why']}", int(message["code"])))
        elif kind == "end":
            self._outcome = Outcome(Phase(message["phase"]), message["why"])
            self.trouble.close()
            if self._is_busy:  # the chief has abandoned what all are in the midst of
                self._abort(PeerLostError("the run has ended"))
        else:
            self._commands.put((kind, message))

    def _take(self, message: Message) -> None:
        try:
            self._received(message)
        except TrainerdError as error:
            self.failed(error)
            self.trouble.found(error)

    def _lost(self, why: str) -> None:
        self.trouble.found(PeerLostError(why))

    def _show(self, state: Message) -> None:
        """Show the run as the chief sees it."""
        last = state["last_checkpoint"]
        self._reporter.update(
            phase=Phase(state["phase"]),
            step=state["step"],
            max_steps=state["max_steps"],
            metrics={name: float("nan") if value is None else value for name, value in state["metrics"].items()},
            steps_per_sec=state["steps_per_sec"],
            last_checkpoint=LastCheckpoint(**last) if last else None,
            saving=state["saving"],
            answers=[Answer(**each) for each in state["answers"]],
        )
