"""An estimator of a `trainerd.Job`: its training, and a checkpoint that is loaded into its state for a while."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.keras_variables import hidden_variables, is_untracked, stored_hidden
from trainerd.checkpoints.contents.misfit import why_unfit
from trainerd.checkpoints.contents.object_graph import own_objects, variables_among
from trainerd.checkpoints.contents.tensor_values import Values
from trainerd.errors import DataError
from trainerd.job.definition import Job
from trainerd.programs.estimator.base import BaseEstimator
from trainerd.programs.estimator.checkpoints import require_whole, step_of
from trainerd.programs.estimator.evaluation.graph import GLOBAL_STEP
from trainerd.programs.estimator.export.saved_model import write_below
from trainerd.programs.estimator.input_fn import call_input_fn
from trainerd.programs.estimator.model_fn import ModeKeys
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

_HOOKS = (
    "hooks of an evaluation are for graphs: this model is evaluated by functions of TensorFlow 2, so leave them out."
)
_MOST = 2**62


class JobEstimator(BaseEstimator):
    """Trains and evaluates a `trainerd.Job`. Its checkpoints are those of the same job under the daemon.

    An input function of the training gives another dataset than the job's own; None stands for the job's. What is
    measured is the job's `evaluate`, so the input function of the evaluation is None.

    Args:
      job: what is trained.
      model_dir, config: see `BaseEstimator`.

    Raises:
      ValueError: see `BaseEstimator`.
    """

    def __init__(
        self, job: Job, model_dir: str | os.PathLike[str] | None = None, config: RunConfig | None = None
    ) -> None:
        super().__init__(model_dir, config)
        self._job = job

    # ------------------------------------------------------------------ what it is made of

    def _job_on(self, input_fn: Any) -> Job:
        """Return the job on the training input of an input function."""
        if input_fn is None:
            return self._job
        return replace(self._job, dataset=self._dataset(input_fn, ModeKeys.TRAIN))

    def _dataset(self, input_fn: Callable[..., Any], mode: str) -> tf.data.Dataset:
        """Return the dataset that an input function gives.

        Raises:
          ValueError: it is not a dataset.
        """
        given = call_input_fn(input_fn, mode, {}, self._config)
        if not isinstance(given, tf.data.Dataset):
            raise ValueError(
                f"input_fn returned a value of type {type(given).__name__}, where a tf.data.Dataset is needed: a "
                "model of TensorFlow 2 reads no tensors of a graph. Return "
                "tf.data.Dataset.from_tensor_slices(...).batch(...)."
            )
        return given

    def _evaluation(self, input_fn: Any, steps: int | None) -> Callable[[], Mapping[str, Any]]:
        """Return the function that evaluates the model as it is, on this input.

        Raises:
          ValueError: there is none.
        """
        if input_fn is not None:
            raise ValueError(
                "a trainerd.Job is measured by its own `evaluate`, which reads its own data: give None as the input "
                "function of the evaluation."
            )
        if self._job.evaluate is None:
            raise ValueError("the job has no `evaluate`: trainerd.Job(..., evaluate=lambda: {'accuracy': ...}).")
        return self._job.evaluate

    def _new_training(self, input_fn: Any, extras: Extras, *, restarts_input: bool) -> FunctionTraining:
        return FunctionTraining(self._job_on(input_fn), self._config, input_fn, extras, restarts_input=restarts_input)

    def trial(self, train_input_fn: Any, eval_input_fn: Any, eval_steps: int | None) -> Job:
        """Return its training as a job, with its evaluation."""
        job = self._job_on(train_input_fn)
        return replace(job, evaluate=self._evaluation(eval_input_fn, eval_steps))

    # ------------------------------------------------------------------ evaluation

    def _measured(self, input_fn: Any, steps: int | None, hooks: Sequence[Any], path: str | None) -> dict[str, Any]:
        if hooks:
            raise ValueError(_HOOKS)
        evaluate = self._evaluation(input_fn, steps)
        with loaded(self._job.state, path):
            return {**evaluate(), GLOBAL_STEP: step_of(path)}

    # ------------------------------------------------------------------ export

    def export_saved_model(
        self,
        export_dir_base: str | bytes | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Export a checkpoint into a new folder, which is named by the time.

        Args:
          export_dir_base: the folder; the export is one below it.
          serving_input_receiver_fn: not used: the model knows its inputs.
          assets_extra: the path below assets.extra to the file that is copied there.
          as_text: not used: there is one format.
          checkpoint_path: the prefix. Default: the newest.
          experimental_mode: only `ModeKeys.PREDICT`.

        Returns:
          The path of the export, as bytes.

        Raises:
          ValueError: there is no checkpoint, or the job has no `export`.
          StorageError: it cannot be written.
        """
        if experimental_mode != ModeKeys.PREDICT:
            raise ValueError(f"experimental_mode {experimental_mode!r}: only ModeKeys.PREDICT can be exported.")
        path = checkpoint_path or self._checkpoint_to_export()
        require_whole(path)
        with loaded(self._job.state, path):
            folder = write_below(Path(os.fsdecode(export_dir_base)), path, self._export, assets_extra)
        return os.fsencode(folder)

    def export_savedmodel(self, *arguments: Any, strip_default_attrs: bool = True, **options: Any) -> bytes:
        """Call `export_saved_model`, by its name in TensorFlow 1."""
        return self.export_saved_model(*arguments, **options)

    def _export(self, folder: Path) -> None:
        """Write the model as it is now."""
        if self._job.export is None:
            raise ValueError("the job has no `export`: trainerd.Job(..., export=lambda folder: ...).")
        self._job.export(folder)


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


@contextlib.contextmanager
def loaded(state: Mapping[str, Any], prefix: str | None) -> Iterator[None]:
    """Give a job's state the values of a checkpoint while the block runs. Then it is again what it was before.

    What is not built yet is built with the values of the checkpoint.

    Args:
      state: see `trainerd.Job`.
      prefix: the checkpoint; None for the state as it is.

    Raises:
      DataError: the checkpoint does not fit the state.
    """
    checkpoint = tf.train.Checkpoint(**{name: part for name, part in state.items() if not is_untracked(part)})
    tracked = variables_among(own_objects(checkpoint))
    hidden = hidden_variables(state, tracked)
    before = Values([*tracked, *hidden.values()])
    try:
        if prefix is not None:
            _read(checkpoint, hidden, prefix)
        yield
    finally:
        before.put_back()


def _read(checkpoint: tf.train.Checkpoint, hidden: Mapping[str, Any], prefix: str) -> None:
    try:
        checkpoint.read(prefix).assert_existing_objects_matched().expect_partial()
        stored = stored_hidden(Path(prefix))
        for key in hidden.keys() & stored.keys():
            hidden[key].assign(stored[key])
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        raise DataError(
            f"{prefix} does not fit the model: its files are sound, but its variables are not those of the "
            f"model. Use another `model_dir` for another model.\n{why_unfit(error)}"
        ) from error
