"""The measurements of a run: metrics, rate, evaluation, summaries; shown in the state, the log and TensorBoard."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from trainerd import text
from trainerd.errors import StorageError
from trainerd.loop.contract import Events, Model, Steps
from trainerd.rundir import lock, run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import EPOCH, Phase

log = logging.getLogger(__name__)

EVALUATION, SUMMARIES, BETWEEN = "the evaluation", "the summaries", "the end of the epoch"
VALIDATION = "val_"  # what the names of an evaluation's metrics begin with
_WINDOW_SECS = 10.0
_FAILED = "event files cannot be written"


Section = Callable[[str], contextlib.AbstractContextManager[None]]


class Recorder:
    """Records one session's metrics.

    Args:
      rundir: the run directory, whose events record evaluations.
      reporter: holds the last value of each metric.
      events: what TensorBoard reads.
      section: makes a context for something that may take long, from its name: a pause does not wait for its end.
      timer: seconds on a clock that is never set, for the rate.

    Attributes:
      took: seconds that evaluations and summaries have taken of the loop.
    """

    def __init__(
        self,
        rundir: RunDirectory,
        reporter: Reporter,
        events: Events,
        *,
        section: Section = lambda name: contextlib.nullcontext(),
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics_steps = 0  # between two points of the curves; 0 for none by steps
        self.took = 0.0
        self._section = section
        self._rundir = rundir
        self._reporter = reporter
        self._events = events
        self._timer = timer
        self._rate = StepRate()
        self._last_at = time.time()
        self._written_step = 0
        self._evaluated_step = 0
        self._last: dict[str, float] = {}

    def begin(self, session: Model, step: int) -> None:
        """Begin to record, also after the run has gone back. The steps after `step` are those of this process."""
        self._written_step, self._evaluated_step, self._last = step, 0, {}
        self._rate = StepRate()
        self._rate.add(session.step, self._timer())
        self._guard(lambda: self._events.begin(step, session))

    def reconfigure(self, metrics_steps: int) -> None:
        """Write the metrics of each step that is a multiple of this; 0 for none by steps."""
        self._metrics_steps = metrics_steps

    def steps(self, steps: Steps) -> None:
        """Keep what these steps measured, and write the points of the curves that fall on them."""
        if not len(steps.rows):
            return
        self._rate.add(steps.last_step, self._timer())
        if gone := self._last.keys() - set(steps.names):  # such as those of a validation
            self._reporter.measured({}, gone)
        self._last = steps.last()
        self._reporter.trained(steps.first - 1, steps.last_step, self._last)
        now = time.time()
        if self._metrics_steps:
            self._write_every(self._metrics_steps, steps, now)
        self._last_at = now

    def _write_every(self, interval: int, steps: Steps, now: float) -> None:
        """Write one row in so many. The time of each step is not known, so the steps are spread evenly."""
        count, first = len(steps.rows), steps.first
        start = -(-first // interval) * interval
        for step in range(start, first + count, interval):
            row = dict(zip(steps.names, map(float, steps.rows[step - first]), strict=True))
            at = self._last_at + (now - self._last_at) * (step - first + 1) / count
            self._write(row, step, at)

    def report(self) -> None:
        """Show the rate of the steps."""
        self._reporter.update(steps_per_sec=self._rate.per_sec())

    def write_metrics(self) -> None:
        """Write a point of each metric's curve for the present step."""
        if self._last and self._reporter.state.step > self._written_step:
            self._write(self._last, self._reporter.state.step, time.time())
        self.flush()

    def _write(self, values: Mapping[str, float], step: int, at: float) -> None:
        self._written_step = step
        self._guard(lambda: self._events.scalars(values, step, at))

    def mark(self, what: str, step: int, value: float | None = None) -> None:
        """Mark a step in TensorBoard: a point of a curve of its own, at the height of the loss.

        Args:
          what: the name of the curve, such as "minimum".
          step: which step.
          value: the height. Default: the last loss. A run whose loss is not known has no marks.
        """
        height = self._last.get("loss") if value is None else value
        if height is None:
            return
        self._guard(lambda: self._events.scalars({f"history/{what}": height}, step, time.time()))

    def count_steps(self) -> None:
        """Write the rate, under the tag that TensorFlow's step counter uses."""
        rate, step = self._rate.per_sec(), self._reporter.state.step
        if rate is not None:
            self._guard(lambda: self._events.scalars({"global_step/sec": rate}, step, time.time()))

    def log_progress(self) -> None:
        """Write a line of progress to the log."""
        self._reporter.set(steps_per_sec=self._rate.per_sec())
        log.info("%s", self._reporter.state.line(), extra={"event": "progress"})

    def evaluate(self, session: Model) -> None:
        """Call the job's `evaluate`, once for each step at most."""
        if not session.has_evaluation or self._evaluated_step == session.step:
            return
        with self._evaluating(EVALUATION):
            metrics = as_validation(session.evaluate())
        self._evaluated_step = session.step
        self._reporter.measured(metrics, metrics.keys())
        self._guard(lambda: self._events.scalars(metrics, session.step, time.time()))
        log.info("evaluated step %d: %s", session.step, text.figures(metrics), extra={"event": "evaluated"})
        run_events.add(self._rundir, EventKind.EVALUATION, text.figures(metrics), step=session.step)

    def between(self, session: Model, then: Callable[[], Mapping[str, float]]) -> None:
        """Have the session do its own work at this boundary, such as the end of an epoch, and keep its metrics."""
        with self._evaluating(BETWEEN):
            metrics = then()
        self._reporter.measured(metrics, metrics.keys() - self._last.keys() - {EPOCH})
        self._guard(lambda: self._events.scalars(metrics, session.step, time.time()))
        if validation := {name: value for name, value in metrics.items() if name.startswith(VALIDATION)}:
            run_events.add(self._rundir, EventKind.EVALUATION, text.figures(validation), step=session.step)

    def summarize(self, session: Model) -> None:
        """Write the summaries."""
        with self._evaluating(SUMMARIES):
            self._guard(lambda: self._events.summaries(session))

    @contextlib.contextmanager
    def _evaluating(self, name: str) -> Iterator[None]:
        begun = self._timer()
        try:
            with self._reporter.phase(Phase.EVALUATING), self._section(name):
                yield
        finally:
            self.took += self._timer() - begun

    def flush(self) -> None:
        """Write the points so far to their file, for readers and for a process that comes after this one is killed."""
        self._guard(self._events.flush)

    def sync(self) -> None:
        """Put the points so far on disk. The thread that writes checkpoints calls it, and waits for it."""
        self._guard(self._events.sync)

    def close(self) -> None:
        """Write what is left."""
        self._guard(self._events.close)

    def _guard(self, write: Callable[[], None]) -> None:
        """Write for TensorBoard. If that fails, training continues and `status` shows a warning."""
        try:
            write()
        except StorageError as error:
            is_moved = lock.moved_to(self._rundir) is not None  # the run ends, with an error that says so
            if not is_moved and not any(w.startswith(_FAILED) for w in self._reporter.state.warnings):
                log.warning("%s: %s", _FAILED, error, extra={"event": "events-failed"})
                self._reporter.warn(f"{_FAILED}: {error}")
            return
        if self._events.is_well:
            self._reporter.unwarn(_FAILED)


def as_validation(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of an evaluation, under the names by which the run knows them."""
    return {f"{VALIDATION}{name}": value for name, value in metrics.items()}


class StepRate:
    """The rate over the last seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, float]] = deque()

    def add(self, step: int, now: float) -> None:
        """Record that `step` was reached at `now`, in seconds."""
        self._marks.append((step, now))
        while len(self._marks) > 2 and self._marks[1][1] <= now - _WINDOW_SECS:
            self._marks.popleft()

    def per_sec(self) -> float | None:
        """Return the steps per second; None before there are two moments."""
        if len(self._marks) < 2 or self._marks[-1][1] <= self._marks[0][1]:
            return None
        (first, then), (last, now) = self._marks[0], self._marks[-1]
        return (last - first) / (now - then)
