"""A callback for programs that keep `model.fit`: signals, durable checkpoints, and a resume in mid-epoch."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from types import FrameType
from typing import Any, Self

import keras
import tensorflow as tf

from trainerd.checkpoints.contents.python_state import PythonValues
from trainerd.checkpoints.contents.tensor_values import Values
from trainerd.errors import DataError, UsageError
from trainerd.loop.flag import Request
from trainerd.loop.outcome import Paused
from trainerd.loop.schedule import Schedule
from trainerd.loop.signals.open_sessions import left_by_error
from trainerd.run.boundary import Boundary
from trainerd.run.handoff_lock import HandoffLock
from trainerd.run.program_loop import LibraryLoop, ProgramLoop
from trainerd.run.settings import KeepSettings
from trainerd.rundir.paths import CHECKPOINT_BASENAME, RunDirectory
from trainerd.rundir.state import Phase
from trainerd.sessions.input.validation_data import ValidationData
from trainerd.sessions.keras.callbacks import Callbacks, as_numbers
from trainerd.sessions.keras.fit_checks import all_of_the_data, other_data, require_position, traced_step
from trainerd.sessions.keras.fit_data import MANY, FitData
from trainerd.sessions.keras.fit_frame import FitCall
from trainerd.sessions.keras.fit_progress import EpochReset, FitProgress, KeptBoundary, learning_rate_of
from trainerd.sessions.keras.fit_stage import TRANSITIONS, FitStage
from trainerd.sessions.keras.fit_step import FitSteps, NotedStep
from trainerd.sessions.keras.job_checks import validation_inputs
from trainerd.sessions.tf2.model import CheckpointModel
from trainerd.sessions.tf2.run import FunctionRun
from trainerd.sessions.tf2.session import FunctionSessionLink, as_steps
from trainerd.system.stages import Stages

log = logging.getLogger(__name__)

_STATE = "training"  # its name in a checkpoint
_RECOMPILED = "%s: the model was recompiled after an error had left `fit`, so nothing is saved of that `fit`"


class Supervise(keras.callbacks.Callback):  # type: ignore[misc]
    """Signals, durable checkpoints and a resume in mid-epoch for `model.fit`. Give it as the last of the callbacks.

    The next `fit` of the program resumes from the newest checkpoint that verifies: with the weights, the optimizer, the
    metrics and the epoch; and with the next batch, if the data is `supervise.data(dataset)`.

    One class, since Keras's Callback is one: Keras calls most of its methods, and the others are what those share.

    Args:
      logdir: the run directory.
      save_model_secs: seconds between checkpoints. 0: none on a schedule.
      save_summaries_secs: seconds between points of the curves. 0: none.
      callbacks: those whose memory is saved too, such as an EarlyStopping: give them to `fit` as well.
      checkpoint_basename: the first part of the checkpoints' names.
    """

    def __init__(
        self,
        logdir: str,
        save_model_secs: float = 600,
        save_summaries_secs: float = 120,
        callbacks: Sequence[Any] = (),
        checkpoint_basename: str = CHECKPOINT_BASENAME,
    ) -> None:
        super().__init__()
        self._rundir = RunDirectory.of(logdir, checkpoint_basename)
        self._save_secs, self._show_secs = save_model_secs, save_summaries_secs
        self._remembering = list(callbacks)
        self._data: FitData | None = None
        self._attached: FunctionRun | None = None
        self._progress = FitProgress()
        self._stages = Stages(FitStage.IDLE, TRANSITIONS)
        self._call: FitCall | None = None
        self._steps: FitSteps | None = None
        self._validation: ValidationData | None = None

    @property
    def step(self) -> int:
        """The number of batches trained with over the run's whole life."""
        return self._progress.step

    def data(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Return the same dataset with a position that is saved. Give it to `fit` in place of the other.

        Raises:
          UsageError: it is no `tf.data.Dataset`.
        """
        if not isinstance(dataset, tf.data.Dataset):
            raise UsageError(f"supervise.data takes a tf.data.Dataset, and this is of type {type(dataset).__name__}.")
        self._data = FitData(dataset)
        return self._data.kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Save what is sound if `fit` has raised an error, and give back the run directory."""
        self._leave(error or left_by_error())

    # ------------------------------------------------------------------ what fit calls

    def set_model(self, model: Any) -> None:
        """Take the model of another `fit`, before callbacks learn of it. A `fit` that has failed is saved before."""
        step = getattr(model, "train_function", None)
        while isinstance(step, NotedStep):  # of another Supervise
            step.is_over()
            step = step.train
        if self._is_over():  # else `fit` runs, and evaluates or predicts with the same callbacks
            super().set_model(model)

    def set_params(self, params: Any) -> None:
        """Take the params of `fit`, except for the number of steps from `FitData`, since it is not a length."""
        if self._attached is not None:  # see `set_model`
            return
        if params and params.get("steps") == MANY:
            params["steps"] = None
        super().set_params(params)

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the newest checkpoint, and have `fit` begin there."""
        if self._attached is not None:
            raise UsageError(
                "this Supervise is a callback of a training that has not ended: give each its own, and its own "
                "`logdir`; and have what may fail in a loop of your own within `with supervise:`."
            )
        self._unsure = self._begun_before = None
        if self._data is not None:
            require_position(self._data, self.model, self.params)
        with tf.device("CPU:0"):
            self._global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self._memory = Callbacks(self._remembering, self.model, epochs=None, steps=None, calls=False)
        self._progress = FitProgress(self._data, self._memory)
        self._restored = self._break = None
        model = self._make_model()
        loop = ProgramLoop(self._stopped, library=LibraryLoop(self._was_left, self._leave_open))
        attached = FunctionRun(self._rundir, model, KeepSettings(), loop)
        self._error: BaseException | None = None
        with attached.begun():
            attached.find()
        self._session_link = _Fitted()
        try:
            attached.take(self._session_link)
        except BaseException as error:
            attached.leave(error)
            raise
        self._boundary.lock.acquire()  # fit is in a step, but where it calls us
        self._attached = attached
        self._call, self._optimizer = FitCall(), self.model.optimizer
        self._memory.warn_of_forgotten([each for each in self._call.callbacks if each is not self])
        self._validation = _validation_of(self._call)
        self._stages.enter(FitStage.BOUNDARY)
        self._resume(model)
        if self._restored is not None and self._progress.left is not None:  # others begin an epoch before us
            self._memory.remember(self._progress.left.callbacks)
        self._steps = FitSteps(self.model, self._stages, self._call, self._is_over)
        attached.start_services(self._save_secs, 0)
        if self._show_secs:
            attached.add_service("curves", attached.write_metrics, Schedule(secs=self._show_secs))
        self._keep_boundary()

    def _make_model(self) -> CheckpointModel:
        """Return the model to save: the Keras model, the progress of `fit`, and the position of its data."""
        parts = {"model": self.model, _STATE: PythonValues(self._progress.read, self._progress.write)}
        if self._data is None:
            return CheckpointModel(tf.train.Checkpoint(**parts), self._global_step)
        parts["data"] = self._data.begin()
        step = traced_step(self.model, self._data.kept.element_spec)
        model = CheckpointModel(tf.train.Checkpoint(**parts), self._global_step)
        model.warn_of_forgotten(step.graph, "the model")
        return model

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Put back what `fit` has just reset, in an epoch that is resumed."""
        self.model._initial_epoch = None  # it is read by now, and another fit of this model is none of ours
        progress, reset = self._progress, self._restored
        if reset is None:
            progress.epoch, progress.batch = epoch, 0
            return
        self._restored = None
        if progress.batch and progress.left is not None:  # others have just begun it once more
            self.model.stop_training = False
            self._memory.put_back(progress.left.callbacks)
            reset.put_back(self.model.optimizer)
        progress.first_batch = progress.batch
        is_unknown = self._data is not None and self._data.size == tf.data.UNKNOWN_CARDINALITY
        is_over = progress.was_stopping or progress.batch == self.params.get("steps")
        if progress.batch and (is_over or is_unknown) and self._steps is not None and progress.left is not None:
            self._steps.replay(progress.left.logs, may_have_more=not is_over)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Record that a step begins: an error from here on is in the middle of it."""
        if self._data is not None and self._begun_before == self._data.begun:
            self._begun_before = None
            raise all_of_the_data(self._data.size)
        self._begun_before = self._progress.kept = None
        if self._steps is not None:
            self._steps.begin(batch)

    def on_test_begin(self, logs: Any = None) -> None:
        """Begin the validation of an epoch that is at its end. If that is not completed, the next start repeats it."""
        if self._stages.now is FitStage.BOUNDARY:  # the epoch's end was not known: others have begun what follows it
            self._stages.enter(FitStage.STEP)
        if self._validation is not None:
            self._validation.begin()
        self._serve_in_validation()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save or pause on request: a validation may take long, and a pause does not wait for its end."""
        self._serve_in_validation()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the step, and serve the flag at the boundary after it."""
        progress, steps, attached = self._progress, self._steps, self._attached
        assert steps is not None and attached is not None
        steps.done = None
        if self._stages.now is FitStage.DONE:
            self._stages.enter(FitStage.STEP)
        if self._data is not None and not self._data.is_read:
            self._refuse_data()
        if self._unsure is not None:
            self._require_whole()
        is_replayed = self._stages.now is FitStage.REPLAYED
        self._stages.enter(FitStage.BOUNDARY)
        if not is_replayed:
            progress.count(batch, self.params.get("steps"), logs)
        else:
            progress.replayed()
            attached.model.count(1)  # what comes now the earlier process had not done
            if progress.was_stopping:
                self.model.stop_training = True
        progress.is_stopping = bool(self.model.stop_training)
        is_last = progress.batch == self.params.get("steps")
        if is_last or progress.is_stopping:  # the epoch's end is a boundary, and comes at once
            self._keep_boundary()
            if progress.first_batch and not progress.is_stopping:
                self.model.stop_training = self._break = _Break()
        if not is_last and not is_replayed and self._boundary.flag.is_raised:
            self._at_boundary()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count the epoch, which has ended, and serve the flag."""
        if self.model.stop_training is self._break:
            self.model.stop_training = False
            if self._data is not None and self._data.size >= 0:
                self._begun_before = self._data.begun
        progress = self._progress
        progress.epoch, progress.batch, progress.first_batch, progress.logs = epoch + 1, 0, 0, logs
        progress.is_stopping, progress.kept = False, None
        self._stages.enter(FitStage.BOUNDARY)
        if self._data is not None and self.params.get("steps") in (None, self._data.size):
            # An epoch that was gone on with at its very end has read no batch, and its data is at its end all the same.
            self._data.was_read = self._data.was_read or self.params.get("steps") is None
            self._data.begin_again()
        if self.model.stop_training:  # fit ends now, and what it is saved with then remembers that
            progress.stopped_by = self._memory.settings
            return
        if self._boundary.flag.is_raised:
            self._at_boundary()
        self._keep_boundary()

    def on_train_end(self, logs: Any = None) -> None:
        """Save the last step."""
        attached = self._attached
        assert attached is not None
        progress = self._progress
        is_between = self._is_amid or progress.epoch > self.params["epochs"]
        if self._restored is not None and progress.stopped_by is None and is_between:  # a later `fit` resumes it
            self._go_back()
            self._leave(None)
            return
        progress.kept = None
        self._stages.enter(FitStage.BOUNDARY)
        self._count(attached)
        if self.step != self._begun_at or (self.step and not attached.was_finished):
            attached.model.count(1)  # what ends training may have changed the weights: to averages, to the best
        try:
            attached.save(None)
        finally:
            self._leave(None)

    # ------------------------------------------------------------------ its own

    _begun_at = 0
    _is_amid = False  # whether this epoch was begun by an earlier process
    _restored: EpochReset | None = None
    _optimizer: Any = None
    _begun_before: int | None = None  # how often the data had been begun, if `fit` must begin it again now
    _break: object = None
    _unsure: CheckpointModel | None = None  # what was restored before `fit` has made its variables

    @property
    def _boundary(self) -> Boundary:
        return self._session_link.session_link.boundary

    def _keep_boundary(self) -> None:
        assert self._attached is not None
        self._progress.kept = KeptBoundary(self._memory.moment(), Values(self._attached.model.variables()))
        self._stages.enter(FitStage.KEPT)

    def _refuse_data(self) -> None:
        error = other_data()
        self._leave(error)
        raise error

    def _require_whole(self) -> None:
        """Require that every restored value has its variable, and had it before the first batch: all are made now."""
        assert self._unsure is not None
        model, self._unsure = self._unsure, None
        try:
            model.require_whole()
        except DataError as error:
            self._leave(error)
            raise

    def _at_boundary(self) -> None:
        """Do the services that are due at a boundary.

        Raises:
          Paused: the run is to pause, and its last step is on disk.
        """
        attached = self._attached
        assert attached is not None
        self._count(attached)
        self._boundary.reached()
        if self._error is not None:
            error, self._error = self._error, None
            self._leave(error)
            raise error
        if attached.outcome is not None and attached.outcome.phase is Phase.PAUSED:
            attached.save(None)
            self._leave(None)
            raise Paused

    def _serve_in_validation(self) -> None:
        """Save, or pause, with the state after the epoch's last batch. A validation that is cut short is done again.

        Raises:
          Paused: see `_at_boundary`.
        """
        kept = self._progress.kept
        if self._attached is None or kept is None:
            return
        flag = self._boundary.flag
        if flag.wants(Request.PAUSE):
            kept.put_back(self._memory)
            self._at_boundary()
        elif flag.wants(Request.SAVE):
            measured = Values(self._attached.model.variables())
            kept.values.put_back()
            self._at_boundary()
            measured.put_back()

    def _count(self, attached: FunctionRun) -> None:
        """Report the steps since the last time."""
        done = self.step - int(self._global_step.numpy())
        self._global_step.assign(self.step)
        if done:
            attached.model.count(done)
            self._session_link.session_link.ran(as_steps(self.step, self._progress.logs or {}))

    def _resume(self, model: CheckpointModel) -> None:
        progress = self._progress
        progress.step = self._begun_at = int(self._global_step.numpy())
        self._is_amid = progress.batch > 0
        if not progress.step:
            return
        # `fit` resets these at the beginning of an epoch that is resumed: they are put back.
        values = (
            [(each, each.numpy()) for each in model.variables()] if self._data is not None and self._is_amid else []
        )
        self._restored = EpochReset(values, learning_rate_of(self.model.optimizer))
        self._unsure = model
        if self._data is None:  # the epoch restarts with its data, and its metrics too
            progress.batch = 0
            model.forget_metrics()
        else:
            self._data.go_on()
            self._require_whole()
        epochs, epoch = self.params["epochs"], progress.epoch
        if epoch >= epochs or progress.stopped_by is not None:
            why = f"fit trains until epoch {epochs}" if epoch >= epochs else "a callback has stopped it"
            log.warning("fit trains nothing: the run is at epoch %d, and %s", epoch, why, extra={"event": "end"})
        # As keras.callbacks.BackupAndRestore does. Where a callback has ended the training, there is none left.
        self.model._initial_epoch = epoch if progress.stopped_by is None else epochs

    def _stopped(self, error: BaseException | None) -> None:
        self._error = error

    def _leave(self, error: BaseException | None) -> None:
        if self._attached is None or self._call is None or self._call.runs_elsewhere:
            return
        self._take_over()
        attached, self._attached, self._call = self._attached, None, None
        with contextlib.ExitStack() as stack:
            self.model._initial_epoch = None  # where no epoch was begun
            stack.callback(attached.leave, error)
            stack.callback(self._boundary.lock.release)
            stack.callback(self._be_idle)
            if error is not None and not isinstance(error, Paused):
                self._save_sound(error, attached)
            attached.part()

    def _be_idle(self) -> None:
        if self._steps is not None:
            self._steps.forget()
        self._steps = self._progress.kept = self._validation = None
        self._stages.enter(FitStage.IDLE)

    def _take_over(self) -> None:
        """Take the lock of a `fit` on another thread, which does not give it back."""
        if self._call is not None and not self._call.is_on_this_thread:
            self._boundary.adopt()
            self._boundary.lock = HandoffLock()
            self._boundary.lock.acquire()

    def _save_sound(self, error: BaseException, attached: FunctionRun) -> None:
        if self.model.optimizer is not self._optimizer:
            log.warning(_RECOMPILED, self._rundir.path, extra={"event": "abandoned"})
            return
        self._go_back_to_boundary()
        self._count(attached)
        if self._stages.now in (FitStage.STEP, FitStage.REPLAYED):
            self._session_link.session_link.fail(error, attached.model.changes)
        attached.save(error)

    def _leave_open(self, error: BaseException | None) -> None:
        """End a `fit` that was left by an error, or by an exit: the program ends, but `fit` did not."""
        is_torn = self._stages.now in (FitStage.STEP, FitStage.REPLAYED)
        self._leave(
            error or (RuntimeError("the program has ended in the middle of a step") if is_torn else SystemExit())
        )

    def _go_back_to_boundary(self) -> None:
        """Count a step that is done, after an error, whichever callback failed; have the end of an epoch repeated."""
        if self._stages.now is FitStage.DONE and self._steps is not None and self._steps.done is not None:
            batch, logs = self._steps.done
            self._steps.done = None
            self._stages.enter(FitStage.BOUNDARY)
            self._progress.count(batch, self.params.get("steps"), as_numbers(logs))
            self._progress.is_stopping = bool(self.model.stop_training)
        self._go_back()

    def _go_back(self) -> None:
        """Undo what callbacks have done since the boundary between two epochs, if `fit` is at one."""
        if self._progress.kept is not None:
            self._progress.kept.put_back(self._memory)

    def _was_left(self, frame: FrameType | None = None) -> bool:
        """Return whether `fit` has ended; see `FitCall.was_left`."""
        return self._call is not None and self._call.was_left(frame)

    def _is_over(self) -> bool:
        """Return whether no `fit` runs. One that was left by an error is ended."""
        if self._was_left():
            self._leave(left_by_error())
        return self._attached is None


def _validation_of(call: FitCall) -> ValidationData:
    training = call.argument("x")
    if not isinstance(training, tf.data.Dataset):
        training = tf.data.Dataset.range(0)  # which shares no stage with the validation
    return ValidationData(validation_inputs(call.argument("validation_data")), training, refuse=False)


class _Break:
    """Ends an epoch that was resumed: `fit` does not know that it has fewer batches, and would ask for more.

    `fit` takes it for True; it is not the True that a callback sets to stop.

    True to `fit`, but not the True that a callback sets to stop.
    """


class _Fitted:
    """The session of an attached run, for `fit`."""

    session_link: FunctionSessionLink
