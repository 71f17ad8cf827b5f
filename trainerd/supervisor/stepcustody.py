"""Looking after a session of TensorFlow 2 functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainerd.rundir import RunDirectory
from trainerd.sessions.contract import Steps
from trainerd.sessions.tracked import TrackedModel
from trainerd.supervisor.boundary import Boundary
from trainerd.supervisor.care import Care
from trainerd.supervisor.custody import Custody, Keep
from trainerd.supervisor.recording import Events
from trainerd.supervisor.stepsession import StepCare, StepSession
from trainerd.supervisor.tenancy import Host


class StepCustody(Custody):
    """Looks after one session of functions; see `Custody`.

    Args:
      rundir: where checkpoints go; None where nothing is saved.
      model: what the functions change.
      keep: how much is kept.
      events: what is written for TensorBoard.
      stop, saving, host: see `Custody`.
      should_stop: whether the program's loop is to end.
    """

    saves_at_start = False  # what there is to save may only be known after the first step

    def __init__(
        self,
        rundir: RunDirectory | None,
        model: TrackedModel,
        keep: Keep,
        events: Events,
        stop: Callable[[BaseException | None], None],
        saving: Callable[[int], None] = lambda step: None,
        host: Host | None = None,
        *,
        should_stop: Callable[[], bool],
    ) -> None:
        self.model = model
        self._should_stop = should_stop
        has_rundir = rundir is not None
        super().__init__(
            rundir,
            model if has_rundir else None,
            keep if has_rundir else None,
            "global_step",
            events,
            stop,
            saving,
            host,
        )

    def _make_care(self, boundary: Boundary) -> Care:
        return StepCare(boundary, ran=self._ran, should_stop=self._should_stop)

    def _adopt(self, session: StepSession) -> None:
        assert isinstance(self._care, StepCare)
        session.care = self._care

    def _open(self, session: Any, prefix: Path | None, step: int) -> None:
        if prefix is not None:
            self.model.restore(prefix)
        self.model.runs = step

    def _ran(self, steps: Steps) -> None:
        """Keep the figures of these steps."""
        if self._upkeep is not None:
            self._recorded = self.model.step
            self._upkeep.recording.steps(steps, self.model)
