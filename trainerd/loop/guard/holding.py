"""Takes the snapshots that a guard serves requests from, as often as their cost allows.

A snapshot takes a millisecond. A step that runs while it is held copies each variable before it writes to it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from trainerd.checkpoints.manifest import About
from trainerd.loop.boundary_state import BoundaryState
from trainerd.loop.contract import Model
from trainerd.loop.guard.guard import LoopGuard
from trainerd.loop.guard.state_check import StateCheck
from trainerd.loop.recorder import EVALUATION, SUMMARIES

SHARE = 0.01  # of the time, that taking states may cost, beside these seconds
ALLOWANCE_SECS = 0.2
COPIED_PER_SEC = 4e9  # bytes, by a step that writes to what is held


class Holding:
    """Holds the state of a session while something long is under way.

    Args:
      session: the model.
      guard: serves requests from it.
      check: checks that evaluations and summaries do not change the state.
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self, session: Model, guard: LoopGuard, check: StateCheck, *, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._guard = guard
        self._check = check
        self._timer = timer
        self._began_at = timer()
        self._spent = 0.0  # seconds
        self._of_steps: BoundaryState | None = None
        self._next_at = 0.0  # when that may be taken again

    @contextlib.contextmanager
    def section(self, name: str, unfinished: tuple[str, ...]) -> Iterator[None]:
        """Hold the state while the block does something at a boundary that may take long.

        Args:
          name: what it is.
          unfinished: the services that the next start does again if a pause cuts the block short.
        """
        begun = self._timer()
        if self._spent > ALLOWANCE_SECS + SHARE * (begun - self._began_at):
            yield
            return
        held = self._take(name, unfinished)
        taken_at = self._timer()
        self._spent += taken_at - begun
        try:
            with self._guard.holding(held):
                yield
                if name in (EVALUATION, SUMMARIES) and (taken := held.held) is not None:
                    self._check.compare(name, taken, self._session, self._timer() - taken_at, taken_at - begun)
        finally:
            held.drop()

    def stepping(self, patience: float) -> contextlib.AbstractContextManager[None]:
        """Hold the state while the block runs steps that may never end.

        Args:
          patience: how many seconds a pause waits for their end.
        """
        held = self._of_steps
        if held is None or held.held is None or self._timer() >= self._next_at:
            held = self._take_of_steps(f"the step after {self._session.step}", patience)
        return self._guard.holding(held)

    def ending(self, patience: float) -> contextlib.AbstractContextManager[None]:
        """Hold the state while the block runs a loop that is to end, and may never do so.

        Args:
          patience: how many seconds it may stay at one step.
        """
        held = self._of_steps
        if held is None or held.held is None or held.paused_at is None or held.changes != self._session.changes:
            held = self._take_of_steps(f"what follows step {self._session.step}", patience, is_paused=True)
        return self._guard.holding(held)

    def forget(self) -> None:
        """Drop the held state: the model is about to be restored, and it is of no use any more."""
        if self._of_steps is not None:
            self._of_steps.drop()
        self._of_steps = None

    def _take_of_steps(self, what: str, patience: float, *, is_paused: bool = False) -> BoundaryState:
        begun, before = self._timer(), self._of_steps
        self._of_steps = held = self._take(what, (), patience, is_paused=is_paused)
        now = self._timer()
        taking = 0.0 if before is None else now - begun  # the first takes longer
        self._next_at = now + (taking + held.size / COPIED_PER_SEC) / SHARE
        if before is not None:
            before.drop()
        return held

    def _take(
        self, name: str, unfinished: tuple[str, ...], patience: float = 0.0, *, is_paused: bool = False
    ) -> BoundaryState:
        model = self._session
        about, snapshot = About(name, unfinished=unfinished), model.snapshot()
        paused_at = self._timer() if is_paused else None
        return BoundaryState(
            model.step, model.changes, model.has_all_variables, about, snapshot, name, patience, paused_at
        )
