"""Detects that a step never ends: a worker lives, and does not reach the operation that all do together.

TensorFlow has a timeout for that. It costs a thread that sleeps for as long, for each collective operation.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from trainerd.errors import PeerLostError, TrainerdError
from trainerd.system.still import Still

_LOOKS = 8  # in the time that a step may take
_LONGEST_SECS = 5.0  # between two of them


class StepWatch:
    """Watches the steps of one worker.

    Args:
      step: the global step, which is read while steps are run.
      seconds: how long one step may take.
      stalled: called once, on another thread.
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self,
        step: Callable[[], int],
        seconds: float,
        stalled: Callable[[TrainerdError], None],
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._step = step
        self._seconds = seconds
        self._stalled = stalled
        self._timer = timer
        self._is_running = False
        self._still = Still()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch the steps that run in the block."""
        self._still, self._is_running = Still(), True
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="trainerd-step-watch", daemon=True)
            self._thread.start()
        try:
            yield
        finally:
            self._is_running = False

    def check(self) -> bool:
        """Check once. Returns whether the step under way takes too long."""
        step = self._step() if self._is_running else None
        return self._still.secs(step, self._timer()) >= self._seconds and step is not None

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(min(_LONGEST_SECS, self._seconds / _LOOKS)):
            if self.check():
                self._stalled(
                    PeerLostError(
                        f"the workers did not come together in step {self._step() + 1} for {self._seconds:g} s "
                        "(cluster.step_secs): one of them is stuck"
                    )
                )
                return
