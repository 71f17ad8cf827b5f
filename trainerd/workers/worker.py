"""A worker that is not the chief: it obeys the chief, and passes on the requests that it gets itself."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from typing import Any

from trainerd.errors import PeerFailedError, PeerLostError, TrainerdError, exit_code_of, headline
from trainerd.loop.outcome import Outcome
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Answer, LastCheckpoint, Phase
from trainerd.workers.peer import Message, Peer
from trainerd.workers.trouble import Trouble

log = logging.getLogger(__name__)

Commands = Mapping[str, Callable[[Message], Mapping[str, Any] | None]]


class Worker:
    """Obeys the chief.

    Args:
      peer: the chief.
      reporter: shows the state of the run that the chief sends.
      received: takes a piece of a file.

    Attributes:
      trouble: what has become of the others.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        reporter: Reporter,
        trouble: Trouble,
        received: Callable[[Message], None],
    ) -> None:
        self._peer = peer
        self._reporter = reporter
        self.trouble = trouble
        self._received = received
        self._commands: queue.SimpleQueue[tuple[str, Message]] = queue.SimpleQueue()
        self._outcome: Outcome | None = None
        self._is_busy = False
        peer.listen(self._heard, self.trouble.lost)

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
            found = self.trouble.next_of(self._commands, lambda: leaves() or self._outcome is not None)
            if found is None:
                return self._outcome
            command, message = found
            self._is_busy = True
            try:
                self._peer.send("answer", **commands[command](message) or {})
            except TrainerdError:
                if self._outcome is not None:  # the run has ended meanwhile: it was abandoned
                    return self._outcome
                raise
            self._is_busy = False
            if command == until:
                return None

    def failed(self, error: BaseException) -> None:
        """Report to the chief that this worker fails: all end."""
        if self.trouble.error is None:
            self._peer.try_send("failed", why=headline(error), code=exit_code_of(error))

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
                self.trouble.abort(PeerLostError("the run has ended"))
        else:
            self._commands.put((kind, message))

    def _take(self, message: Message) -> None:
        try:
            self._received(message)
        except TrainerdError as error:
            self.failed(error)
            self.trouble.found(error)

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
