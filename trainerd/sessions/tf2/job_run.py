"""A `trainerd.Job` in a loop with hooks: its steps are those of the daemon, and so are its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.errors import JobError
from trainerd.loop.contract import Steps
from trainerd.loop.schedule import Schedule
from trainerd.run.program_loop import ProgramLoop
from trainerd.run.settings import KeepSettings
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf2.job_session import FunctionSession
from trainerd.sessions.tf2.run import FunctionRun
from trainerd.sessions.tf2.session import Step, StepSession


class JobRun(FunctionRun):
    """The run of a job; see `FunctionRun`.

    Args:
      rundir, loop: see there.
      model: the job, ready to be trained.
      keep: how many checkpoints are kept.
      summary_steps: steps between two calls of the job's summaries; 0 for none.
    """

    def __init__(
        self,
        rundir: RunDirectory | None,
        loop: ProgramLoop,
        *,
        model: FunctionSession,
        keep: KeepSettings,
        summary_steps: int = 0,
    ) -> None:
        super().__init__(rundir, model, keep, loop)
        self._summary_steps = summary_steps

    def make_session(self) -> StepSession:
        """Return a session, which `take` restores."""
        return _JobSteps(self.model)

    def take(self, session: Any) -> Any:
        """Manage this session; see `AttachedRun`. The job's summaries are on a schedule."""
        super().take(session)
        if self._summary_steps:
            self.add_service("summaries", self.summarize, Schedule(steps=self._summary_steps))
        return session

    def _open(self, session: Any, prefix: Path | None, step: int, *, was_finished: bool) -> None:
        if prefix is not None:
            self.model.restore(prefix)


class _JobSteps(StepSession):
    """Runs the steps of a job, whatever step function it is given."""

    def __init__(self, model: FunctionSession) -> None:
        self._job = model

    @property
    def step(self) -> int:
        """The global step."""
        return self._job.step

    def run_step(self, step_fn: Step, feed_dict: Mapping[str, Any] | None = None) -> Any:
        """Run one step; see `StepSession.run_step`."""
        if feed_dict:
            raise ValueError(f"a job's step takes its batch, and no arguments: {sorted(feed_dict)}.")
        return self.run_steps(step_fn, self.step + 1)[1]

    def run_steps(self, step_fn: Step, limit: int, stops_at: tuple[str, ...] = ()) -> tuple[Steps, Any]:
        """Run steps up to this one; see `StepSession.run_steps`."""
        self._job.bind(self.session_link.boundary.flag)
        try:
            steps = self._job.run_until(limit)
        except JobError as error:
            self.session_link.fail(error, self._job.changes if not error.sound else -1)
            raise
        if steps.ended and not len(steps.rows):
            raise tf.errors.OutOfRangeError(None, None, "the input has ended")
        return steps, steps.last() if len(steps.rows) else None
