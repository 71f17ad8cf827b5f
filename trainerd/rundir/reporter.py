"""The run's State: it changes at boundaries and is shown to observers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psutil

from trainerd.errors import TrainerdError
from trainerd.rundir.goodput import Goodput, Spent
from trainerd.rundir.state import Phase, State

_SPENT = {
    Phase.SAVING: Spent.SAVING,
    Phase.PAUSING: Spent.SAVING,
    Phase.EVALUATING: Spent.EVALUATING,
    Phase.FINISHING: Spent.EVALUATING,  # a program's own code runs, outside of its training
    Phase.PAUSED: Spent.PAUSED,
    Phase.FINISHED: Spent.PAUSED,
    Phase.FAILED: Spent.DOWN,
}  # what is not here is part of a start
Observer = Callable[[State], None]


class Reporter:
    """Holds the present State and shows each new one to every observer, in their order.

    Args:
      state: the first one.
      observers: called with each new State, by one thread at a time, the loop's most often: they must be quick.
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self,
        state: State,
        observers: list[Observer],
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = state
        self._observers = observers
        self._timer = timer
        self._shown, self._shown_at = state, timer()
        self._process = psutil.Process()
        self._lock = threading.RLock()

    def update(self, **changes: Any) -> None:
        """Change fields of the state and show it."""
        with self._lock:
            self.state = replace(self.state, **changes, at=time.time())
            if not self.state.phase.is_over:  # of a run that is over, it stays what the run needed
                self.state = replace(self.state, memory_bytes=self._process.memory_info().rss)
            self.state = replace(self.state, goodput=self._spent())
            for observer in self._observers:
                observer(self.state)

    def _spent(self) -> Goodput:
        """Return how the time was spent up to now."""
        before, began = self._shown, self._shown_at
        self._shown, self._shown_at = self.state, self._timer()
        took, spent = self._shown_at - began, self.state.goodput
        if before.phase is Phase.TRAINING:
            return spent.after_training(before.step, max(before.step, self.state.step), took)
        return spent.after(_SPENT.get(before.phase, Spent.STARTING), took)

    def measured(self, metrics: Mapping[str, float], names: Collection[str]) -> None:
        """Show metrics that were measured at the present step.

        Args:
          metrics: the metrics.
          names: those that the next steps do not measure again: each keeps its step.
        """
        with self._lock:
            steps = self.state.measured | dict.fromkeys(names, self.state.step)
            self.update(metrics=self.state.metrics | dict(metrics), measured=steps)

    def set(self, **changes: Any) -> None:
        """Change fields of the state; the next update shows them."""
        with self._lock:
            self.state = replace(self.state, **changes)

    def trained(self, first: int, last: int, metrics: Mapping[str, float]) -> None:
        """Record that steps were trained, from one boundary to another; the next update shows it.

        One copy of the state, since some sessions call this after every step.
        """
        with self._lock:
            spent = self.state.goodput
            spent = spent.after_steps(first, last) if first < spent.known_until else spent
            measured = self.state.measured
            if measured.keys() & metrics.keys():
                measured = {name: step for name, step in measured.items() if name not in metrics}
            metrics = {**self.state.metrics, **metrics}
            self.state = replace(self.state, step=last, metrics=metrics, measured=measured, goodput=spent)

    def went_back(self) -> None:
        """Record that the run has gone back: what it trains again from here on was not lost in a crash."""
        with self._lock:
            self.state = replace(self.state, goodput=replace(self.state.goodput, known_until=0))

    @contextlib.contextmanager
    def observed_by(self, observers: Sequence[Observer]) -> Iterator[None]:
        """Show each new State to these observers too, while the block runs."""
        with self._lock:
            before, self._observers = self._observers, [*self._observers, *observers]
        try:
            yield
        finally:
            with self._lock:
                self._observers = before

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Show a phase while the block runs, and the one before it afterwards."""
        before = self.state.phase
        self.update(phase=phase)
        try:
            yield
        except TrainerdError as error:
            error.phase = error.phase or str(phase)
            raise
        finally:
            self.update(phase=before)

    def warn(self, warning: str) -> None:
        """Add a warning to those that `status` shows."""
        with self._lock:
            if warning not in self.state.warnings:
                self.update(warnings=[*self.state.warnings, warning])

    def unwarn(self, start: str) -> None:
        """Remove the warnings that start like this: they no longer hold."""
        with self._lock:
            kept = [w for w in self.state.warnings if not w.startswith(start)]
            if kept != self.state.warnings:
                self.update(warnings=kept)
