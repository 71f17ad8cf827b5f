"""A callback for programs that keep `model.fit`: signals, durable checkpoints, and a resume at an epoch's beginning."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from trainerd.checkpoints.contents.python_state import PythonValues, packed
from trainerd.errors import DataError, UsageError
from trainerd.loop.outcome import FIT_ENDED, Paused
from trainerd.loop.signals.open_sessions import left_by_error
from trainerd.run.program_loop import ProgramLoop
from trainerd.run.settings import KeepSettings
from trainerd.rundir.paths import CHECKPOINT_BASENAME, RunDirectory
from trainerd.sessions.keras.callbacks import Callbacks
from trainerd.sessions.tf2.model import CheckpointModel
from trainerd.sessions.tf2.run import FunctionRun
from trainerd.sessions.tf2.session import FunctionSessionLink, as_steps

log = logging.getLogger(__name__)


class Supervise(keras.callbacks.Callback):  # type: ignore[misc]
    """Signals, durable checkpoints and a resume for `model.fit`. Give it as the last of the callbacks.

    The next `fit` of the program resumes from the newest checkpoint that verifies, with the weights, the optimizer, the
    epoch and the memory of the callbacks. An epoch that was interrupted restarts with its first batch, as with
    `keras.callbacks.BackupAndRestore`. `trainerd.keras.fit` resumes with the next batch.

    An error that ends `fit` ends its training where the newest checkpoint is.

    Args:
      logdir: the run directory.
      save_model_secs: seconds between checkpoints. 0: none on a schedule.
      save_summaries_secs: seconds between points of the curves, beside one for each epoch. 0: none at all.
      callbacks: those whose memory is saved too, such as an EarlyStopping: give them to `fit` as well.
      checkpoint_basename: the first part of the checkpoints' names.
    """

    def __init__(
        self,
        logdir: str,
        save_model_secs: float = 600,
        save_summaries_secs: float = 120,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        checkpoint_basename: str = CHECKPOINT_BASENAME,
    ) -> None:
        super().__init__()
        self._rundir = RunDirectory.of(logdir, checkpoint_basename)
        self._save_secs, self._show_secs = save_model_secs, save_summaries_secs
        self._remembering = list(callbacks)
        self._attached: FunctionRun | None = None
        self._session = _Fitted()
        self._error: BaseException | None = None  # of a service
        self._step = self._epoch = self._batch = 0
        self._logs: Any = None
        self._stopped_by: Any = None  # the callbacks' settings, if one of them has ended the training

    @property
    def step(self) -> int:
        """The number of batches trained with over the run's whole life."""
        return self._step

    def data(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Return the dataset. Deprecated: its position is not saved any more."""
        warnings.warn(
            "supervise.data is deprecated and returns the dataset itself: an interrupted epoch restarts. "
            "trainerd.keras.fit resumes with the next batch.",
            DeprecationWarning,
            stacklevel=2,
        )
        return dataset

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Give back the run directory if an error has ended `fit`."""
        self._leave(error or left_by_error())

    # ------------------------------------------------------------------ what fit calls

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the newest checkpoint, and have `fit` begin with its epoch."""
        if self._attached is not None:
            self._end_earlier(self._attached)
        self._step = self._epoch = self._batch = 0
        self._logs = self._stopped_by = self._error = None
        self._fitted, self._epochs, self._steps = self.model, self.params["epochs"], self.params.get("steps")
        _build(self.model)
        self._memory = Callbacks(self._remembering, self.model, epochs=None, steps=None, calls=False)
        self._memory.warn_of_forgotten()
        with tf.device("CPU:0"):
            self._global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        values = PythonValues(self._read, self._write)
        model = CheckpointModel(tf.train.Checkpoint(model=self.model, training=values), self._global_step)
        loop = ProgramLoop(self._stop, metrics_secs=self._show_secs, ended=FIT_ENDED, serves_when_idle=False)
        attached = FunctionRun(self._rundir, model, KeepSettings(), loop)
        with attached.begun():
            attached.find()
        try:
            attached.take(self._session)
            self._resume(model)
        except BaseException as error:
            _begin_with(self._fitted, None)
            attached.leave(error)
            raise
        self._attached = attached
        attached.start_services(self._save_secs, 0)
        self._session.session_link.begin(attached.changes)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Record that an epoch begins."""
        _begin_with(self._fitted, None)  # `fit` has read it, and another `fit` of this model begins with its own
        self._epoch, self._batch = epoch, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps that are done, and serve the flag at the boundary after them."""
        # There are several with steps_per_execution; the last of an epoch may have fewer than `fit` says.
        done = min(batch + 1, self._steps or batch + 1) - self._batch
        self._batch += done
        self._step += done
        self._logs = logs
        self._at_boundary(done, serves=self._batch != self._steps)  # the epoch's end is a boundary, and comes at once

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count the epoch, and serve the flag."""
        self._epoch, self._batch, self._logs = epoch + 1, 0, logs
        if self._fitted.stop_training:
            self._stopped_by = self._memory.settings
        self._count(0)
        if self._show_secs:
            self._open().write_metrics()
        self._at_boundary(1, serves=not self._fitted.stop_training)  # callbacks may have changed something

    def on_train_end(self, logs: Any = None) -> None:
        """Save the last step."""
        attached = self._open()
        is_of_a_later_fit = self._was_amid or self._epoch > self._epochs
        if self._step == self._began_at and (is_of_a_later_fit or attached.was_finished):
            self._attached = None
            _begin_with(self._fitted, None)
            attached.part()
            attached.leave(None)
            return
        self._count(1)  # what ends training may have changed the weights: to averages, to the best
        self._leave(None)

    # ------------------------------------------------------------------ its own

    _is_unsure = False  # whether the checkpoint may have values whose variables are not made yet
    _began_at = 0  # the step
    _was_amid = False  # whether the checkpoint is of the midst of an epoch

    def _read(self) -> Any:
        """Return the plain values that a checkpoint holds."""
        progress = {"epoch": self._epoch, "batch": self._batch, "stopped_by": self._stopped_by}
        return {**progress, "callbacks": self._memory.memory()}

    def _write(self, values: Any) -> None:
        """Take over what a checkpoint holds."""
        self._epoch, self._batch = values["epoch"], values["batch"]
        self._memory.remember(values["callbacks"])
        is_same = packed(values["stopped_by"]) == packed(self._memory.settings)
        self._stopped_by = values["stopped_by"] if is_same else None

    def _resume(self, model: CheckpointModel) -> None:
        self._step = self._began_at = model.step
        self._was_amid, self._batch = self._batch > 0, 0
        self._is_unsure = self._step > 0
        if not self._step:
            return
        model.forget_metrics()
        if self._epoch >= self._epochs or self._stopped_by is not None:
            is_done = self._epoch >= self._epochs
            why = f"fit trains until epoch {self._epochs}" if is_done else "a callback has stopped it"
            log.warning("fit does nothing: the run is at epoch %d, and %s", self._epoch, why, extra={"event": "end"})
        # Where a callback has ended the training, no epoch is left.
        _begin_with(self._fitted, self._epoch if self._stopped_by is None else self._epochs)

    def _at_boundary(self, changes: int, *, serves: bool) -> None:
        """Count the changes since the last boundary, and serve the flag if it is raised.

        Raises:
          Paused: the run is to pause, and its last step is on disk.
          DataError: the checkpoint that was restored has values without a variable.
        """
        attached = self._open()
        attached.model.count(changes)
        if self._is_unsure:
            self._is_unsure = False
            self._require_whole(attached)
        link = self._session.session_link
        if serves and link.boundary.flag.is_raised:
            self._count(0)
            link.boundary.reached()
            if self._error is not None:
                error = self._error
                self._leave(error)
                raise error
            if attached.is_paused:
                self._leave(None)
                raise Paused
        link.begin(attached.changes)

    def _require_whole(self, attached: FunctionRun) -> None:
        """Require that every restored value has its variable: the first step has made all of them."""
        try:
            attached.model.require_whole()
        except DataError as error:
            self._session.session_link.begin(attached.changes)
            self._leave(error)
            raise

    def _count(self, changes: int) -> None:
        """Report the steps since the last time, and so many other changes."""
        attached = self._open()
        done = self._step - int(self._global_step.numpy())
        self._global_step.assign(self._step)
        attached.model.count(changes)
        if done:
            self._session.session_link.ran(as_steps(self._step, self._logs or {}))

    def _open(self) -> FunctionRun:
        """Return the run of this `fit`."""
        if self._attached is None or not self._attached.is_active:
            raise UsageError(f"another training has begun in {self._rundir.path}: give each its own `logdir`.")
        return self._attached

    def _end_earlier(self, attached: FunctionRun) -> None:
        """End the run of an earlier `fit`, which an error has ended."""
        self._session.session_link.boundary.inherit()
        if not self._session.session_link.boundary.is_mine:
            raise UsageError(
                "this Supervise is a callback of a training that has not ended: give each training its own, with its "
                "own `logdir`."
            )
        self._leave(left_by_error())

    def _stop(self, error: BaseException | None) -> None:
        self._error = error

    def _leave(self, error: BaseException | None) -> None:
        attached, self._attached = self._attached, None
        if attached is not None:
            _begin_with(self._fitted, None)
            attached.save_and_leave(error)


def _begin_with(model: Any, epoch: int | None) -> None:
    """Have `fit` begin with this epoch, as keras.callbacks.BackupAndRestore does; None: with its own first one."""
    model._initial_epoch = epoch


def _build(model: Any) -> None:
    """Make the variables of the optimizer, if those of the model are made, so that all are restored before a step."""
    optimizer = model.optimizer
    if model.built and isinstance(optimizer, keras.optimizers.Optimizer) and not optimizer.built:
        optimizer.build(model.trainable_variables)


class _Fitted:
    """The session of an attached run, for `fit`."""

    session_link: FunctionSessionLink
