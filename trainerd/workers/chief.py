"""The chief of a cluster: it decides, and the other workers do what it does, in lockstep.

Whatever changes the state (steps, a restore, a number that is set) is a command that all get before the chief does it
too. What any worker is asked for reaches the chief as a message, raises its flag, and is served at a boundary, which
all have in common. So there is one loop, one clock and one order at a boundary: the chief's.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainerd.errors import PeerFailedError, TrainerdError, exit_code_of, full_message
from trainerd.loop.outcome import Outcome
from trainerd.rundir.state import State, WorkerState
from trainerd.workers.peer import Message, Peer
from trainerd.workers.trouble import Trouble

STATE_SECS = 1.0
_LONGEST_WHY = 10_000  # characters
END_SECS = 1.0  # in which the others take note of the end


class Chief:
    """The chief's side of the connections to the other workers.

    Args:
      peers: the other workers, by rank.
      asked: called with a worker's rank, what it was asked for, and what belongs to that, on another thread.
      seen: called with the states of the others, when one of them reports its own, on another thread.
      trouble: what has become of the others.
    """

    def __init__(
        self,
        peers: Mapping[int, Peer],
        *,
        asked: Callable[[int, str, Message], None],
        seen: Callable[[list[WorkerState]], None],
        trouble: Trouble,
    ) -> None:
        self._peers = dict(peers)
        self._asked = asked
        self._seen = seen
        self._states: dict[int, WorkerState] = {}
        self.trouble = trouble
        self._answers: dict[int, queue.SimpleQueue[Message]] = {rank: queue.SimpleQueue() for rank in peers}
        self._is_over = False
        self._sent_at = float("-inf")
        self._sent: State | None = None
        for rank, peer in self._peers.items():
            peer.listen(self._listener(rank), self.trouble.lost)

    @property
    def size(self) -> int:
        """The number of workers, this one included."""
        return len(self._peers) + 1

    # ------------------------------------------------------------------ commands

    def send(self, command: str, **arguments: Any) -> None:
        """Have all others execute this command.

        Raises:
          PeerLostError: one of them is gone.
          PeerFailedError: one of them has failed.
        """
        for peer in self._peers.values():
            self.trouble.check()
            peer.send(command, **arguments)

    def answers(self, leaves: Callable[[], bool] = lambda: False) -> dict[int, Message]:
        """Wait until all others have executed it. Returns the answers by rank; none if this worker leaves instead.

        Args:
          leaves: whether to leave instead of waiting.

        Raises:
          PeerLostError: one of them is gone.
          PeerFailedError: one of them has failed.
        """
        found = {rank: self.trouble.next_of(self._answers[rank], leaves) for rank in self._peers}
        return {rank: answer for rank, answer in found.items() if answer is not None}

    def call(self, command: str, **arguments: Any) -> dict[int, Message]:
        """Have all others execute this command, and wait until they have; see `send` and `answers`."""
        self.send(command, **arguments)
        return self.answers()

    # ------------------------------------------------------------------ what others say

    def _listener(self, rank: int) -> Callable[[str, Message], None]:
        def heard(kind: str, message: Message) -> None:
            if kind == "answer":
                self._answers[rank].put(message)
            elif kind == "state":
                self._states[rank] = WorkerState.read(rank, message["state"])
                self._seen([state for _, state in sorted(self._states.items())])
            elif kind == "failed":
                why = str(message["why"])[:_LONGEST_WHY]
                self.trouble.found(PeerFailedError(f"worker {rank}: {why}", int(message["code"])))
            else:
                self._asked(rank, kind, message)

        return heard

    # ------------------------------------------------------------------ what others get

    def observe(self, state: State) -> None:
        """Send the state of the run to the others, which show it as theirs. An observer of the state."""
        now = time.monotonic()
        before = self._sent
        is_news = before is None or (state.phase, state.last_checkpoint, state.answers) != (
            before.phase,
            before.last_checkpoint,
            before.answers,
        )
        if is_news or now - self._sent_at >= STATE_SECS:
            self._sent_at, self._sent = now, state
            shown = replace(state, workers=[]).to_json()
            for peer in self._peers.values():
                peer.try_send("state", state=shown)

    def end(self, outcome: Outcome | BaseException) -> None:
        """End the run: the others end as the chief does. May be called twice, and from any thread."""
        if self._is_over:
            return
        self._is_over = True
        self.trouble.close()
        if isinstance(outcome, Outcome):
            last: dict[str, Any] = {"phase": str(outcome.phase), "why": outcome.why}
        else:
            why = full_message(outcome) if isinstance(outcome, TrainerdError) else repr(outcome)
            last = {"phase": "failed", "why": why, "code": exit_code_of(outcome)}
        for peer in self._peers.values():
            peer.try_send("end", **last)
        deadline = time.monotonic() + END_SECS
        for peer in self._peers.values():
            peer.wait_until_gone(deadline - time.monotonic())
            peer.close()
