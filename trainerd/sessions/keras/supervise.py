"""A callback for programs that keep `model.fit`: signals, durable checkpoints, and a resume in mid-epoch."""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, Self

import keras
import tensorflow as tf

from trainerd.checkpoints.contents.python_state import PythonValues, is_plain, packed
from trainerd.checkpoints.contents.tensor_values import Values
from trainerd.errors import DataError, UsageError
from trainerd.loop.flag import Request
from trainerd.loop.outcome import Paused
from trainerd.loop.schedule import Schedule
from trainerd.loop.signals.open_sessions import left_by_error
from trainerd.managed.abandoned import LibraryLoop
from trainerd.managed.handoff_lock import HandoffLock
from trainerd.managed.settings import KeepSettings
from trainerd.rundir.paths import CHECKPOINT_BASENAME, RunDirectory
from trainerd.rundir.state import Phase
from trainerd.sessions.keras.callback_memory import Moment
from trainerd.sessions.keras.callbacks import Callbacks, as_numbers
from trainerd.sessions.keras.fit_checks import all_of_the_data, other_data, require_position, traced_step
from trainerd.sessions.keras.fit_data import MANY, FitData
from trainerd.sessions.keras.fit_step import NotedStep, is_below, running_fit, runs_on
from trainerd.sessions.tf2.model import CheckpointModel
from trainerd.sessions.tf2.run import FunctionRun
from trainerd.sessions.tf2.session import FunctionStepGuard, as_steps

log = logging.getLogger(__name__)

_STATE = "training"  # its name in a checkpoint
_COMPILED_ANEW = "%s: the model was compiled anew since an error has left `fit`, so nothing is saved of that"


class Supervise(keras.callbacks.Callback):  # type: ignore[misc]
    """Looks after `model.fit`. Give it as the last of the callbacks.

    The next `fit` of the program goes on from the newest checkpoint that verifies: with the weights, the optimizer, the
    metrics and the epoch; and with the next batch, where the data is `supervise.data(dataset)`.

    Args:
      logdir: the run directory.
      save_model_secs: seconds between checkpoints. 0: none on a schedule.
      save_summaries_secs: seconds between points of the curves. 0: none.
      callbacks: those whose memory is saved too, such as an EarlyStopping: give them to `fit` as well.
      checkpoint_basename: the first part of the checkpoints' names.

    Attributes:
      step: how many batches have been trained with over the run's whole life.
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
        self.step = 0
        self._rundir = RunDirectory.of(logdir, checkpoint_basename)
        self._save_secs, self._show_secs = save_model_secs, save_summaries_secs
        self._remembering = list(callbacks)
        self._data: FitData | None = None
        self._managed: FunctionRun | None = None
        self._epoch = self._batch = 0
        self._logs: Any = None
        self._stopped_by: Any = None

    def data(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The same dataset, whose position is saved. Give it to `fit` in the place of the other.

        Raises:
          UsageError: it is no `tf.data.Dataset`.
        """
        if not isinstance(dataset, tf.data.Dataset):
            raise UsageError(f"supervise.data takes a tf.data.Dataset, and this is a {type(dataset).__name__}.")
        self._data = FitData(dataset)
        return self._data.kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Where `fit` has raised an error, save what is sound of it and give back the run directory."""
        self._leave(error or left_by_error())

    # ------------------------------------------------------------------ what fit calls

    def set_model(self, model: Any) -> None:
        """Another `fit` begins, and no callback knows of it yet. Those that have raised an error are saved before."""
        step = getattr(model, "train_function", None)
        while isinstance(step, NotedStep):  # of another Supervise
            step.is_over()
            step = step.train
        if self._is_over():  # else `fit` runs, and evaluates or predicts with the same callbacks
            super().set_model(model)

    def set_params(self, params: Any) -> None:
        """What `fit` says of itself. No callback is to take the number that `FitData` tells Keras for a length."""
        if self._managed is not None:  # see `set_model`
            return
        if params and params.get("steps") == MANY:
            params["steps"] = None
        super().set_params(params)

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the newest checkpoint, and have `fit` begin there."""
        if self._managed is not None:
            raise UsageError(
                "this Supervise is a callback of a training that has not ended: give each its own, and its own "
                "`logdir`; and have what may fail in a loop of your own within `with supervise:`."
            )
        self._is_within = self._is_told_again = self._is_resumed = False
        self._unsure = self._begun_before = None
        if self._data is not None:
            require_position(self._data, self.model, self.params)
        with tf.device("CPU:0"):
            self._global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self._memory = Callbacks(self._remembering, self.model, epochs=None, steps=None, calls=False)
        self._restored = self._stopped_by = self._logs = self._break = None
        self._is_stopping, self._was_stopping, self._first_batch = False, False, 0
        model = self._make_model()
        managed = FunctionRun(self._rundir, model, KeepSettings(), stop=self._stopped, should_stop=lambda: False)
        self._error: BaseException | None = None
        with managed.begun():
            managed.find()
        self._step_guard = _Fitted()
        try:
            managed.take(self._step_guard)
        except BaseException as error:
            managed.leave(error)
            raise
        self._managed = managed
        self._fit, self._thread, self._optimizer = running_fit(), threading.current_thread(), self.model.optimizer
        managed.loop = LibraryLoop(self._was_left, self._leave_open)
        self._step_guard.step_guard.boundary.lock.acquire()  # fit is in a step, but where it calls us
        self._resume(model)
        if self._restored is not None:  # before anything of an epoch: others begin it before us
            self._memory.remember(self._was)
        self._note_steps()
        managed.start_services(self._save_secs, 0)
        if self._show_secs:
            managed.add_service("curves", managed.write_metrics, Schedule(secs=self._show_secs))
        self._keep_boundary()

    def _make_model(self) -> CheckpointModel:
        """What is saved: the model, where `fit` is, and where its data is."""
        parts = {"model": self.model, _STATE: PythonValues(self._read, self._write)}
        if self._data is None:
            return CheckpointModel(tf.train.Checkpoint(**parts), self._global_step)
        parts["data"] = self._data.begin()
        step = traced_step(self.model, self._data.kept.element_spec)
        model = CheckpointModel(tf.train.Checkpoint(**parts), self._global_step)
        model.warn_of_forgotten(step.graph, "the model")
        return model

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """In an epoch that goes on, put back what `fit` has just reset."""
        self.model._initial_epoch = None  # it is read by now, and another fit of this model is none of ours
        if self._restored is None:
            self._epoch, self._batch = epoch, 0
            return
        reset, rate = self._restored
        self._restored = None
        if self._batch:  # others have just begun it once more
            self.model.stop_training = False
            self._memory.put_back(self._was)
            for variable, value in reset:
                variable.assign(value)
            if rate is not None:
                self.model.optimizer.learning_rate.assign(rate)  # a scheduler may have moved it on
        self._first_batch = self._batch
        is_unknown = self._data is not None and self._data.size == tf.data.UNKNOWN_CARDINALITY
        is_over = self._was_stopping or self._batch == self.params.get("steps")
        if self._batch and (is_over or is_unknown):
            self._require_a_batch(not is_over)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A step begins: an error from here on is in the middle of it."""
        if self._data is not None and self._begun_before == self._data.begun:
            self._begun_before = None
            raise all_of_the_data(self._data.size)
        self._begun_before = self._at_last = None
        self._is_within, self._begun_batch = True, batch

    def on_test_begin(self, logs: Any = None) -> None:
        """An epoch is at its end, which is done again where it is not done to its own end."""
        self._is_within = self._at_last is None  # others were told before us
        self._serve_in_validation()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """A validation may take long, and nobody who pauses waits for its end."""
        self._serve_in_validation()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A boundary."""
        self._untold = None
        if self._data is not None and not self._data.is_read:
            self._refuse_data()
        if self._unsure is not None:
            self._require_whole()
        told_again, self._is_told_again, self._is_within = self._is_told_again, False, False
        if not told_again:
            self._take(batch, logs)
        else:
            self._take_again()
        self._is_resumed = False
        self._is_stopping = bool(self.model.stop_training)
        is_last = self._batch == self.params.get("steps")
        if is_last or self._is_stopping:  # the epoch's end is a boundary, and comes at once
            self._keep_boundary()
            if self._first_batch and not self._is_stopping:
                self.model.stop_training = self._break = _Break()
        if not is_last and not told_again and self._step_guard.step_guard.boundary.flag.is_raised:
            self._at_boundary()

    def _take(self, batch: int, logs: Any) -> None:
        """Count what was trained."""
        # More than one with steps_per_execution, of which an epoch's last execution may have fewer than fit says.
        done = batch + 1 + self._first_batch - self._batch
        if steps := self.params.get("steps"):
            done = min(done, steps - self._batch)
        self._batch += done
        self.step += done
        self._is_resumed = False
        if self._data is not None:
            self._data.was_read = True
        self._logs = logs

    def _take_again(self) -> None:
        """Callbacks were told of a batch that another process had trained: it is all as that had left it."""
        assert self._data is not None and self._managed is not None
        self._memory.put_back(self._was)
        self._data.was_read = self._was_read
        self._managed.model.runs += 1  # what comes now it had not done
        self._logs = self._last_logs
        if self._was_stopping:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The next epoch is to come."""
        if self.model.stop_training is self._break:
            self.model.stop_training = False
            if self._data is not None and self._data.size >= 0:
                self._begun_before = self._data.begun
        self._epoch, self._batch, self._first_batch, self._logs = epoch + 1, 0, 0, logs
        self._is_within, self._is_stopping, self._at_last = False, False, None
        if self._data is not None and self.params.get("steps") in (None, self._data.size):
            # An epoch that was gone on with at its very end has read no batch, and its data is at its end all the same.
            self._data.was_read = self._data.was_read or self.params.get("steps") is None
            self._data.begin_again()
        if self.model.stop_training:  # fit ends now, and what it is saved with then remembers that
            self._stopped_by = self._memory.settings
            return
        if self._step_guard.step_guard.boundary.flag.is_raised:
            self._at_boundary()
        self._keep_boundary()

    def on_train_end(self, logs: Any = None) -> None:
        """Save the last step."""
        managed = self._managed
        assert managed is not None
        is_between = self._is_amid or self._epoch > self.params["epochs"]
        if self._restored is not None and self._stopped_by is None and is_between:  # it is for a later `fit` to go on
            self._go_back()
            self._leave(None)
            return
        self._at_last = None
        self._count(managed)
        if self.step != self._begun_at or (self.step and not managed.was_finished):
            managed.model.runs += 1  # what ends training may have changed the weights: to averages, to the best
        try:
            managed.save(None)
        finally:
            self._leave(None)

    # ------------------------------------------------------------------ its own

    _first_batch = _begun_at = _begun_batch = 0
    _is_within = _is_told_again = _was_read = _is_resumed = _is_stopping = _was_stopping = _is_amid = False
    _fit: FrameType | None = None  # of `fit`, while it runs
    _thread: threading.Thread  # on which it runs
    _restored: Any = None
    _optimizer: Any = None
    _begun_before: int | None = None  # how often the data had been begun, where `fit` must begin it again now
    _break: object = None
    _noted: NotedStep | None = None
    _instead: Any = None  # what comes in the place of the next step
    _untold: tuple[int, Any] | None = None  # the last batch of a step that is done, and its logs, until we are told
    _at_last: tuple[Moment, Values] | None = None  # what callbacks were, and the variables
    _unsure: CheckpointModel | None = None  # what was restored before `fit` has made its variables

    def _note_steps(self) -> None:
        """Have it known when a step is done: the callbacks that are told of it before us may fail."""
        train = self.model.train_function
        while isinstance(train, NotedStep) and train.is_over():
            train = train.train
        self._noted = self.model.train_function = NotedStep(self.model, train, self._take_note, self._is_over)
        self._instead = None

    def _take_note(self, train: Any, iterator: Any) -> Any:
        """Do the step that we were told of, or what comes in its place. Another's, or a callback's, is none of ours."""
        is_ours = not self._is_over() and self._thread is threading.current_thread()
        if not is_ours or not self._is_within or self._is_told_again or self._untold is not None:
            return train(iterator)
        instead, self._instead = self._instead or self._step, None
        return instead(iterator)

    def _step(self, iterator: Any) -> Any:
        assert self._noted is not None
        logs = self._noted.train(iterator)
        self._untold = self._begun_batch + self._noted.model.steps_per_execution - 1, logs
        return logs

    def _forget_steps(self) -> None:
        """Give the model its own step back, where it has not another one by now."""
        noted, self._noted = self._noted, None
        if noted is not None and noted.model.train_function is noted:
            noted.model.train_function = noted.train
        self._untold = self._at_last = self._instead = None

    def _keep_boundary(self) -> None:
        """Between two epochs others do much to rates and weights: where that fails, it is as if it were not done."""
        assert self._managed is not None
        self._at_last = self._memory.moment(), Values(self._managed.model.variables())

    def _require_a_batch(self, may_have_more: bool) -> None:
        """Have an epoch that was saved after its last batch end with the logs of that: `fit` is told them once more.

        It knows no other way to them, and without a batch it would tell callbacks of an epoch without any.

        Args:
          may_have_more: whether there may be another batch all the same.
        """
        last = self._last_logs

        def train_or_tell(iterator: Any) -> Any:
            try:
                if may_have_more:
                    return self._step(iterator)
            except (tf.errors.OutOfRangeError, StopIteration) as error:  # this with steps_per_execution
                self._instead = ending(error)
            self._is_told_again = True
            return last

        def ending(error: Exception) -> Any:
            def end(iterator: Any) -> Any:
                raise error  # and not tried again: what it did before it failed, such as drawing seeds, is done

            return end

        self._instead = train_or_tell

    def _refuse_data(self) -> None:
        error = other_data()
        self._leave(error)
        raise error

    def _require_whole(self) -> None:
        """All variables are made: what was restored has its own now, and has had them before the first batch."""
        assert self._unsure is not None
        model, self._unsure = self._unsure, None
        try:
            model.require_whole()
        except DataError as error:
            self._leave(error)
            raise

    def _at_boundary(self) -> None:
        """Do what is due.

        Raises:
          Paused: the run is to pause, and its last step is on disk.
        """
        managed = self._managed
        assert managed is not None
        self._count(managed)
        self._step_guard.step_guard.boundary.reached()
        if self._error is not None:
            error, self._error = self._error, None
            self._leave(error)
            raise error
        if managed.outcome is not None and managed.outcome.phase is Phase.PAUSED:
            managed.save(None)
            self._leave(None)
            raise Paused

    def _serve_in_validation(self) -> None:
        """Save, or pause, as the state was after the epoch's last batch. A validation that is cut short is made again.

        Raises:
          Paused: see `_at_boundary`.
        """
        if self._managed is None or self._at_last is None:
            return
        flag = self._step_guard.step_guard.boundary.flag
        if flag.wants(Request.PAUSE):
            self._go_back()
            self._at_boundary()
        elif flag.wants(Request.SAVE):
            measured = Values(self._managed.model.variables())
            self._at_last[1].put_back()
            self._at_boundary()
            measured.put_back()

    def _count(self, managed: FunctionRun) -> None:
        """Tell of the steps since the last time."""
        done = self.step - int(self._global_step.numpy())
        self._global_step.assign(self.step)
        if done:
            managed.model.runs += done
            self._step_guard.step_guard.ran(as_steps(self.step, self._logs or {}))

    def _resume(self, model: CheckpointModel) -> None:
        self.step = self._begun_at = int(self._global_step.numpy())
        self._is_amid = self._batch > 0
        if self.step:
            found = getattr(self.model.optimizer, "learning_rate", None)
            rate = found.numpy() if found is not None and hasattr(found, "assign") else None
            self._restored = (self._resettable(model), rate)
            if self._data is None:  # the epoch begins anew with its data, and its metrics too
                self._batch = 0
                model.forget_metrics()
                self._unsure = model
            else:
                self._data.go_on()
                self._unsure = model
                self._require_whole()
            self._tell_of_end()
            # As keras.callbacks.BackupAndRestore does. Where a callback has ended the training, there is none left.
            self.model._initial_epoch = self._epoch if self._stopped_by is None else self.params["epochs"]

    def _resettable(self, model: CheckpointModel) -> list[tuple[Any, Any]]:
        """Where an epoch goes on: what `fit` or a callback may change where one begins, such as an RNN's state."""
        if self._data is None or not self._batch:
            return []
        return [(each, each.numpy()) for each in model.variables()]

    def _tell_of_end(self) -> None:
        """Where `fit` has nothing left to train, say so."""
        epochs = self.params["epochs"]
        if self._epoch >= epochs or self._stopped_by is not None:
            why = f"fit trains until epoch {epochs}" if self._epoch >= epochs else "a callback has stopped it"
            log.warning("fit trains nothing: the run is at epoch %d, and %s", self._epoch, why, extra={"event": "end"})

    def _read(self) -> Any:
        where = {"epoch": self._epoch, "batch": self._batch, "stopped_by": self._stopped_by}
        where["is_stopping"] = self._was_stopping if self._is_resumed else self._is_stopping
        if self._data is not None:  # which `fit` begins again before validation and the epoch's end
            was_read = self._was_read if self._is_resumed else self._data.was_read
            where |= {"passes": self._data.passes, "was_read": was_read}
        logs = (self._last_logs if self._is_resumed else self._logs) or {}
        where["logs"] = {name: value for name, value in logs.items() if is_plain(value)}
        return {**where, "callbacks": self._at_last[0].memory if self._at_last else self._memory.memory()}

    def _write(self, values: Any) -> None:
        self._epoch, self._batch, self._was = values["epoch"], values["batch"], values["callbacks"]
        if self._data is not None:
            self._data.passes = values.get("passes", 0)
        self._was_read, self._is_resumed = values.get("was_read", True), True  # until there is a batch
        self._was_stopping = values.get("is_stopping", False)
        self._last_logs = values.get("logs", {})
        same = packed(values["stopped_by"]) == packed(self._memory.settings)
        self._stopped_by = values["stopped_by"] if same else None

    def _stopped(self, error: BaseException | None) -> None:
        self._error = error

    def _leave(self, error: BaseException | None) -> None:
        if self._managed is None or self._runs_elsewhere():
            return
        self._take_over()
        managed, self._managed, self._fit = self._managed, None, None
        with contextlib.ExitStack() as stack:
            self.model._initial_epoch = None  # where no epoch was begun
            stack.callback(managed.leave, error)
            stack.callback(self._step_guard.step_guard.boundary.lock.release)
            stack.callback(self._forget_steps)
            if error is not None and not isinstance(error, Paused):
                self._save_sound(error, managed)
            managed.part()

    def _runs_elsewhere(self) -> bool:
        """Whether `fit` runs on another thread."""
        return self._thread is not threading.current_thread() and runs_on(self._thread, self._fit)

    def _take_over(self) -> None:
        """Where `fit` was on another thread, that does not give back the lock which it held."""
        boundary = self._step_guard.step_guard.boundary
        if self._thread is not threading.current_thread():
            self._thread, boundary.thread = threading.current_thread(), threading.get_ident()
            boundary.lock = HandoffLock()
            boundary.lock.acquire()

    def _save_sound(self, error: BaseException, managed: FunctionRun) -> None:
        if self.model.optimizer is not self._optimizer:
            log.warning(_COMPILED_ANEW, self._rundir.path, extra={"event": "abandoned"})
            return
        self._go_back_to_boundary()
        self._count(managed)
        if self._is_within:
            self._step_guard.step_guard.fail(error, managed.model.changes)
        managed.save(error)

    def _leave_open(self, error: BaseException | None) -> None:
        """The program ends, and `fit` has not ended: by an error, or an exit that nobody can tell of by now."""
        is_torn = self._is_within and self._untold is None and self._at_last is None
        self._leave(
            error or (RuntimeError("the program has ended in the middle of a step") if is_torn else SystemExit())
        )

    def _go_back_to_boundary(self) -> None:
        """After an error: a step that is done is counted, whichever callback failed; an epoch's end is yet to come."""
        if self._untold is not None:
            batch, logs = self._untold
            self._untold, self._is_within = None, False
            self._take(batch, as_numbers(logs))
            self._is_stopping = bool(self.model.stop_training)
        self._go_back()

    def _go_back(self) -> None:
        """What callbacks have done since the boundary is not done."""
        if self._at_last is not None:
            self._is_within = False
            moment, values = self._at_last
            values.put_back()
            self._memory.go_back(moment)

    def _was_left(self, frame: FrameType | None = None) -> bool:
        """Whether `fit` has ended, as nobody tells where it was by an error: it does not call this, nor that frame."""
        if self._fit is None or self._runs_elsewhere():
            return False
        return not is_below(frame or inspect.currentframe(), self._fit)

    def _is_over(self) -> bool:
        """Whether no `fit` runs; where one was left by an error, it is ended."""
        if self._was_left():
            self._leave(left_by_error())
        return self._managed is None


class _Break:
    """Ends an epoch that was gone on with: `fit` does not know that it has fewer batches, and would ask for more.

    True to `fit`; to who set it, another than what a callback sets that wants to stop.
    """


class _Fitted:
    """What `fit` is to who looks after it."""

    step_guard: FunctionStepGuard
