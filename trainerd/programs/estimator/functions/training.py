"""The training of a `trainerd.Job` as an estimator: steps in the graph between two boundaries."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from trainerd.job.definition import Job
from trainerd.programs.estimator.run_config import RunConfig
from trainerd.programs.estimator.training import Extras, Training
from trainerd.programs.hooks.logging_tensor import LoggingTensorHook
from trainerd.programs.hooks.stopping import NanTensorHook
from trainerd.programs.monitored.save_settings import StepSaveSettings
from trainerd.programs.monitored.step_session import MonitoredStepSession
from trainerd.run.settings import KeepSettings
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf2.job_run import JobRun
from trainerd.sessions.tf2.job_session import FunctionSession
from trainerd.sessions.tf2.metrics import LOSS

_MOST = 2**62


class FunctionTraining(Training):
    """The training of a job; see `Training`.

    Args:
      job: the model and its input.
      config, input_fn, extras, restarts_input: see there.
    """

    session: MonitoredStepSession

    def __init__(
        self, job: Job, config: RunConfig, input_fn: Any, extras: Extras, *, restarts_input: bool = False
    ) -> None:
        super().__init__(config, input_fn, extras, restarts_input=restarts_input)
        self._job = job

    def _open(self) -> None:
        config = self._config
        # The evaluations are the schedule's, and not a service of the session.
        model = FunctionSession(replace(self._job, evaluate=None), restores_input=not self._restarts_input)
        watching: list[Any] = []
        if LOSS in model.metrics:
            watching.append(NanTensorHook(LOSS))
            if config.log_step_count_steps:
                watching.append(LoggingTensorHook([LOSS], every_n_iter=config.log_step_count_steps))
        keep = KeepSettings(config.keep_checkpoint_max or 0, config.keep_checkpoint_every_n_hours or 0)
        shows = config.save_summary_steps or 0
        make_run = partial(
            JobRun, model=model, keep=keep, summary_steps=shows if self._job.summaries is not None else 0
        )
        settings = StepSaveSettings(
            RunDirectory.of(str(config.model_dir)),
            save_secs=config.save_checkpoints_secs or 0,
            save_steps=config.save_checkpoints_steps or 0,
            show_secs=0,
            show_steps=shows,
            count_steps=config.log_step_count_steps or 0,
            listeners=tuple(self._extras.listeners),
            loss=LOSS,
        )
        self.session = MonitoredStepSession(make_run, [*watching, *self._extras.hooks], settings)

    @property
    def step(self) -> int:
        """The global step."""
        return self.session.step

    def _steps(self, begun: int, last: float) -> None:
        session = self.session
        try:
            while session.step < last and not session.should_stop():
                found = session.run(self._job.train_step, steps=int(min(last, _MOST)) - session.step)
                self.loss = (found or {}).get(LOSS, self.loss)
        finally:
            self._done = session.step - begun
