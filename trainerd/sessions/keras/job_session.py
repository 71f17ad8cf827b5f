"""Steps of a Keras model, run in the graph; its epochs, validations and callbacks at the boundaries between."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainerd import text
from trainerd.checkpoints.contents.kept import KeptValues, restore_kept
from trainerd.checkpoints.contents.keras_variables import VALUE
from trainerd.checkpoints.contents.object_graph import own_objects, variables_among, weights_alone
from trainerd.checkpoints.contents.python_state import PythonValues, stored
from trainerd.checkpoints.contents.tensor_values import Values
from trainerd.config.fingerprint import CALL, EPOCHS, PROGRAM_SOURCE
from trainerd.errors import DataError, JobError
from trainerd.job.definition import Job, KerasJob
from trainerd.job.user_code import called_at_boundary
from trainerd.loop.contract import Epochs, Exportable, Steps
from trainerd.rundir.state import EPOCH
from trainerd.sessions.input.iterators import begin_again
from trainerd.sessions.input.validation_data import ValidationData
from trainerd.sessions.keras.bar import Bar
from trainerd.sessions.keras.call_data import CallData
from trainerd.sessions.keras.callbacks import Callbacks, as_numbers, raised_in, without_files
from trainerd.sessions.keras.job_checks import (
    checked,
    data_of,
    epochs_of,
    flat_callbacks,
    has_strategy,
    require_splits,
    validation_inputs,
)
from trainerd.sessions.keras.progress import CallHistory, Progress, history_of, names_in, number_of, saveable
from trainerd.sessions.keras.train_step import LatestArrays, flat, step_of, trained_variables
from trainerd.sessions.tf2.eager_step import EagerStep
from trainerd.sessions.tf2.job_session import FunctionSession, examples_of
from trainerd.sessions.tf2.replicas import Replicas

log = logging.getLogger(__name__)

LOG_SECS = 1.0
_STATE = "training"  # its name in a checkpoint
_STEP = f"global_step/{VALUE}"
_NO_ROWS = np.empty((0, 0))


class KerasJobSession(FunctionSession):
    """A `trainerd.KerasJob`, ready to be trained.

    One class, since the loop's contract asks for some of its methods, and the others are moments of the same epoch.

    Args:
      job: what to train.
      wrap: maps the job of its steps to the one that is trained. Default: the same.
      writes: whether callbacks that write files are called.
      max_steps: the step at which training ends; None if it has no such end.
      bar: shows the epochs; None for nothing.
      models: the models of the calls of `fit` in this run, in the order of their first calls, with that of the job.
        Default: that of the job alone.
      call: the number of calls of `fit` that this program has made in the same run before this one.
      name: the name of this call, by which it is found among those of the run; None: by its place.
      data: the data of this call, which is compared if the run has completed the call before; None for no comparison.
      program: the source of the program that calls `fit`; empty if it is unknown.
      follows: the step at which the last of them has ended; None for the first call.
      epochs_before: the number of epochs of all of them.
      trial_steps: to try the job: each epoch ends after so many steps, with a validation. None: as the job says.
      timer: seconds on a clock that is never set.
      options: see `FunctionSession`.

    Raises:
      EntryError: the job cannot be trained.
    """

    def __init__(
        self,
        job: KerasJob,
        *,
        wrap: Callable[[Job], Job] = lambda job: job,
        writes: bool = True,
        max_steps: int | None = None,
        bar: Bar | None = None,
        models: Sequence[Any] = (),
        call: int = 0,
        name: str | None = None,
        data: CallData | None = None,
        program: str = "",
        follows: int | None = None,
        epochs_before: int = 0,
        trial_steps: int | None = None,
        timer: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        job = checked(job)
        self._trial_steps = trial_steps
        self._keras = job if trial_steps is None else dataclasses.replace(job, validation_freq=1)
        self._model = job.model
        self._data, self._size, self._epoch_steps = data_of(job, epochs_before)
        self._is_done_before, self._bar, self._follows = False, bar, follows
        if (replicas := self._replicas_of(())) is not None:
            require_splits(job, replicas.count)
        callbacks = job.callbacks if writes else without_files(job.callbacks)
        elsewhere = [each for each in job.callbacks if each not in callbacks]
        length, ahead = self._epoch_steps, None if job.epochs is None else job.epochs - job.initial_epoch
        self._steps_ahead = length * ahead if length and ahead else None
        self._models = {name_of(number): each for number, each in enumerate(models or [job.model])}
        number = next(number for number, each in enumerate(self._models.values()) if each is job.model)
        self._take(Progress(job.initial_epoch, call=call, name=name, model=number, epochs_before=epochs_before))
        epochs = epochs_of(job, length, max_steps)
        self._callbacks = Callbacks(callbacks, job.model, epochs=epochs, steps=self._epoch_steps, elsewhere=elsewhere)
        self._timer, self._logged_at = timer, -math.inf
        self._remembered: Any = None
        self._before: Any = None  # what callbacks remembered before what is under way between two epochs
        self._ended_changes = 0
        self._row: dict[str, float] = {}
        self._is_begun = False
        state = {**self._models, _STATE: PythonValues(self._read_progress, self._write_progress)}
        self._arrays = LatestArrays()
        self._names = set[str]()  # what the step gives
        super().__init__(Job(self._step_of(job.model), dataset=self._data, state=state), wrap=wrap, **options)
        read = validation_inputs(job.validation_data)
        self._call_data, self._program = data, program
        self._progress.data = {} if data is None else data.of(job.model)  # which is built now
        self._validation = ValidationData(read, self._data, refuse=bool(options.get("repeats")))
        self._trains: Any = trained_variables(job.model)  # by the step; None once that has been compared

    # ------------------------------------------------------------------ the contract

    @functools.cached_property
    def calls_python(self) -> bool:
        """True if a step does. A callback that wants every batch is called around each step."""
        return bool(self._callbacks.wants_batches or self._model.run_eagerly or super().calls_python)

    @property
    def changes(self) -> int:
        """The step, and whether callbacks have changed the model at the end."""
        return self.step + self._ended_changes

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint of its state and data, and its epochs."""
        epochs, call = self._keras.epochs, self._progress.call
        found = super().fingerprint() | ({} if epochs is None else {EPOCHS: str(epochs)})
        found |= {PROGRAM_SOURCE: self._program} if self._program else {}
        return found | ({CALL: str(call)} if call else {})

    def run_until(self, limit: int) -> Steps:
        """Run steps as `FunctionSession` does, to the end of the epoch at most."""
        if self._is_done_before:
            return Steps(self.step + 1, (), _NO_ROWS, over=f"call {self.call + 1} of fit was completed before")
        if not self._is_begun:
            self._begin(None)
        if why := self._over():
            return Steps(self.step + 1, (), _NO_ROWS, over=why)
        progress, before = self._progress, self.step
        if progress.epoch_began is None:
            self._begin_epoch(before)
        self._require_same()
        assert progress.epoch_began is not None
        if self._model.stop_training:  # `fit` does one step of an epoch, and then looks
            limit = min(limit, max(before, progress.epoch_began + 1))
        if self._bar is not None:
            self._bar.begin(progress.epoch, self._keras.epochs or 0, progress.epoch_began, self._epoch_steps)
        end = progress.epoch_began + self._epoch_steps if self._epoch_steps else math.inf
        data_end = progress.input_began + self._size if self._size else math.inf
        end = min(end, data_end, progress.epoch_began + (self._trial_steps or math.inf))
        if self._callbacks.wants_batches and before < min(limit, end):
            steps = self._run_batches(before, int(min(limit, end)))
        else:
            steps = self._run(before, int(min(limit, end)))
        now = steps.last_step
        self._row = steps.last() or self._row
        if not steps.ended and now < end and not self._model.stop_training:
            return steps
        if steps.ended and now == progress.input_began:
            raise JobError("the data has no batches", step=now, sound=True)
        # The end of the data is known by its size before it is read: an iterator that stands there, and was not asked
        # for more, draws once more from its shuffle's seeds when it is restored and asked.
        data_ended = steps.ended or now >= data_end
        return Steps(steps.first, steps.names, steps.rows, then=lambda: self._end_epoch(data_ended))

    def restore(self, prefix: Path) -> None:
        """Read a checkpoint, and give callbacks their memory back."""
        progress = _saved_progress(prefix)
        names = [*names_in(progress.histories), progress.name]
        self._progress.call = number_of(self.call, self._progress.name, names)
        if progress.call != self.call:
            self._follow(prefix, progress)
            return
        if progress.model != self._progress.model:
            raise DataError(
                f"{prefix} was saved by call {self.call + 1} of fit in this run, which trained another model "
                "than now. Put the calls back into their order, or use another `logdir`."
            )
        if self._is_begun:
            self._callbacks.reset()
        self._begin(progress)
        self._row, self._before, self._remembered = {}, None, None
        super().restore(prefix)
        if not self._exact_input and not self._is_at_end(self._progress):  # the data restarts, and an epoch with it
            self._progress.input_began = self.step
            self._progress.epoch_began, self._progress.batch_began = None, False

    def load(self, prefix: Path) -> None:
        """Read a checkpoint of this call of `fit`; or of another one, which may have another optimizer, the weights."""
        if _saved_progress(prefix).call == self.call:
            super().load(prefix)
        else:
            self._read_weights(prefix)

    def _is_at_end(self, progress: Progress) -> bool:
        """Return whether only the end of an epoch is left to do."""
        if progress.epoch_began is None:
            return False
        if progress.stops or progress.logs is not None:
            return True
        return self.step - progress.epoch_began == (self._epoch_steps or self._size)

    def _follow(self, prefix: Path, saved: Progress) -> None:
        """Begin after another call of `fit`, whose checkpoint this is.

        After the call before this one, the program has the state, and may have changed it. After a later call, this one
        is completed: the program has been started again.

        Raises:
          DataError: a call between the two is missing, or this one trains already; or it is completed, with other data.
        """
        step, histories = int(tf.train.load_variable(str(prefix), _STEP)), saved.histories
        is_next = saved.call == self.call - 1 and self._follows in (None, step)
        if self._is_begun or not (is_next or saved.call > self.call):  # the run went back meanwhile
            raise DataError(
                f"{prefix} was saved by call {saved.call + 1} of fit in this run, at step {step}, and call "
                f"{self.call + 1} follows step {self._follows}. Start the program again: it skips the calls that "
                "are complete."
            )
        if saved.call < self.call:
            ended = {"model": saved.model, "name": saved.name, "step": step, "data": saved.data}
            histories = [*histories, history_of(stored(prefix, _STATE)["callbacks"]) | ended]
        else:
            self._is_done_before = True
            if self._call_data is not None:
                self._call_data.require_same(self.call, histories[self.call], self._model)
            self._read_weights(prefix)
            restore_kept(prefix)
        self.begin_at(step)
        now = dataclasses.replace(self._progress, epoch=self._keras.initial_epoch, input_began=step, call_began=step)
        self._take(dataclasses.replace(now, histories=histories))

    def _read_weights(self, prefix: Path) -> None:
        """Give the model its newest weights: code between two complete calls may use them."""
        read_weights(prefix, self._model, self._progress.model, self.call)

    def _take(self, progress: Progress) -> None:
        self._progress, ahead = progress, self._steps_ahead
        self.epochs = Epochs(self._keras.epochs, None if ahead is None else progress.call_began + ahead)

    @property
    def call(self) -> int:
        """The number of calls of `fit` before this one."""
        return self._progress.call

    @property
    def histories(self) -> list[CallHistory]:
        """The results of each call of `fit` that the run has completed before its newest one."""
        return self._progress.histories

    def _passed_over(self, count: int) -> None:
        """Move the beginning of the data back by so many steps: the epoch ends sooner."""
        self._progress.input_began -= count

    @property
    def can_score(self) -> bool:
        """True if the job has data to validate with."""
        return self._keras.validation_data is not None

    def score(self) -> dict[str, float]:
        """Validate the model."""
        return numbers(self._validate())

    def exportable(self) -> Exportable:
        """Return the model, with the data that it is validated and tested with."""
        job = self._keras
        validation = None
        if job.validation_data is not None:
            validation = keras.utils.unpack_x_y_sample_weight(job.validation_data)
        return Exportable(
            model=self._model,
            examples=lambda count: examples_of(self._data, count),
            validation=validation,
            validation_steps=job.validation_steps,
            predict=None if job.test_data is None else self._predict,
        )

    def _predict(self) -> dict[str, Any]:
        """Return the model's predictions of its test data: a column for each number."""
        found = np.asarray(self._model.predict(self._keras.test_data, verbose=0))
        rows = found.reshape(len(found), -1)
        if rows.shape[1] == 1:
            return {"prediction": rows[:, 0]}
        return {f"prediction_{column}": rows[:, column] for column in range(rows.shape[1])}

    def end(self, *, finished: bool) -> None:
        """Call `on_train_end` of the callbacks. A pause does not call it."""
        if not self._is_begun and finished and self.call and not self._is_done_before:
            self._begin(None)  # the run is over before its first step
        if not self._is_begun:
            return
        if finished:
            self._callbacks.leave()
        step, progress = self.step, self._progress
        if not finished or step == 0 or progress.told == step:
            self._callbacks.pause()
            return
        with self._whole():
            if isinstance(self._model.optimizer, keras.optimizers.Optimizer):
                self._model.optimizer.finalize_variable_values(self._model.trainable_weights)
            self._call("on_train_end", step=step, logs=progress.epoch_logs or self._logs())
        progress.told = step
        self._ended_changes += 1  # they may put back the best weights

    # ------------------------------------------------------------------ epochs

    def _step_of(self, model: Any) -> Any:
        """Return the model's own step."""
        return step_of(model, self._arrays, self._names, self._replicas_of(()))

    def _replicas_of(self, variables: Iterable[Any]) -> Replicas | None:
        """Return the devices for which the model was made, which may have no variables yet."""
        return Replicas.of([self._model.distribute_strategy] if has_strategy(self._model) else [])

    def _on_replicas(self, step: Any) -> Any:
        return step

    def _trace(self, step: Any) -> Any:
        """Return the step, traced; or as Python runs it, if the model is compiled so."""
        if not self._model.run_eagerly:
            return super()._trace(step)
        return EagerStep(step, [self._iterator.element_spec], self._variables_of(self._models))

    def _begin(self, was: Progress | None) -> None:
        """Begin or resume the training. The callbacks begin first, since the checkpoint overwrites what they do."""
        if was is None:
            self._progress.rows = self._callbacks.rows()
            self._callbacks.begin()
        else:
            self._callbacks.resume(was.epoch, was.rows)
        self._is_begun = True

    @property
    def _passing(self) -> list[Any]:
        return self._arrays.variables

    @property
    def _passes(self) -> int:
        return self._progress.epochs_before + self._progress.passes

    def _over(self) -> str:
        epochs = self._keras.epochs
        if self._progress.epoch_began is None and epochs is not None and self._progress.epoch >= epochs:
            return f"epochs = {epochs} are done"
        return self._progress.stopped

    def _begin_epoch(self, step: int) -> None:
        with self._whole():
            self._model.reset_metrics()
            self._call("on_epoch_begin", self._progress.epoch, step=step)
        self._progress.epoch_began = step

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Keep the state before the block, which runs between two steps.

        If the block fails, that state is saved, and the next start runs the block again.
        """
        if self._keras.validation_data is None and not self._keras.callbacks:  # nothing to be done, or to fail
            yield
            return
        before, self._before = Values(self._variables), self._memory()
        kept = KeptValues(self.step)
        try:
            yield
        except JobError:
            before.put_back()
            kept.put_back()
            raise
        self._before = None

    @functools.cached_property
    def _variables(self) -> list[Any]:
        """All that callbacks and a validation may change."""
        return [*variables_among(own_objects(self._checkpoint)), *self._hidden.values()]

    def _require_same(self) -> None:
        """Refuse a change of what is trained before the first step.

        `fit` makes its step only now, after `on_train_begin`.
        """
        if self._trains is None:
            return
        if self.step == self._progress.call_began and self._trains != trained_variables(self._model):
            raise JobError(
                "a callback changed `trainable` or the optimizer before the first step. Change it before you create "
                "the KerasJob",
                step=self.step,
                sound=True,
            )
        self._trains = None

    def _run_batches(self, before: int, until: int) -> Steps:
        """Run steps one by one, and the callbacks around each, until a boundary is wanted.

        A boundary costs as much as a small step.
        """
        done: list[Steps] = []
        for step in range(before, until):
            done.append(self._run_batch(step))
            if not len(done[-1].rows) or self._wants_boundary:
                break
        return Steps(before + 1, done[-1].names, np.concatenate([each.rows for each in done]), done[-1].ended)

    @property
    def _wants_boundary(self) -> bool:
        return self._loop.wants_boundary or bool(self._model.stop_training)

    def _run_batch(self, before: int) -> Steps:
        """Run one step, and the callbacks around it.

        If the flag is raised, the step waits, and callbacks are not called again.
        """
        assert self._progress.epoch_began is not None
        batch = before - self._progress.epoch_began
        if not self._progress.batch_began:
            self._call("on_train_batch_begin", batch, step=before)
            self._progress.batch_began = True
        steps = self._run(before, before + 1)
        if len(steps.rows):
            self._progress.batch_began = False
            self._call("on_train_batch_end", batch, steps.last() | self._arrays.read(), step=before + 1)
        return steps

    def _end_epoch(self, data_ended: bool) -> dict[str, float]:
        """Do what `fit` does at the end of an epoch. Returns the logs that are numbers."""
        progress, step = self._progress, self.step
        assert progress.epoch_began is not None
        done, wanted = step - progress.epoch_began, self._epoch_steps
        if data_ended and wanted and done < wanted:
            log.warning(
                "the data ran out after %d of the %d steps of epoch %d; end it with .repeat() to continue from its "
                "beginning in mid-epoch",
                done,
                wanted,
                progress.epoch + 1,
                extra={"event": "data-ended"},
            )
        logs = progress.logs or self._logs()
        progress.logs = saveable(logs)
        with self._whole():
            logs = logs | self._validated()
            self._call("on_epoch_end", progress.epoch, logs, step=step)
        if self._bar is not None:
            self._bar.end(done, logs)
        progress.epoch_logs = saveable(logs)
        metrics = numbers(logs)
        is_logged = (now := self._timer()) - self._logged_at >= LOG_SECS
        self._logged_at = now if is_logged else self._logged_at
        level = logging.INFO if is_logged else logging.DEBUG  # small epochs come by the dozen in a second
        log.log(
            level,
            "epoch %d ended at step %d: %s",
            progress.epoch + 1,
            step,
            text.figures(metrics),
            extra={"event": "epoch"},
        )
        if self._model.stop_training:
            progress.stopped = f"a callback stopped the training in epoch {progress.epoch + 1}"
            progress.settings = self._callbacks.settings
        if data_ended:
            begin_again(self._iterator)
            progress.passes += 1
            progress.input_began = step
            self._loop.enter()
        progress.epoch, progress.epoch_began, progress.logs, progress.stops = progress.epoch + 1, None, None, False
        progress.batch_began = False  # of one that the data had no more
        return {EPOCH: float(progress.epoch), **metrics}

    def _logs(self) -> dict[str, Any]:
        """Return the metrics of the epoch so far, as `fit` gives them to callbacks."""
        of_metrics = as_numbers(flat(self._model.get_metrics_result()))
        given = self._given()
        return of_metrics if not given or set(of_metrics) == self._names else given

    def _given(self) -> dict[str, Any]:
        """Return the logs of the last step, which may have been run before a pause."""
        return self._row | self._arrays.read() if self._row else self._progress.given

    def _validated(self) -> dict[str, Any]:
        """Return the metrics of the validation of the epoch that ends; none if it has none."""
        every, number = self._keras.validation_freq, self._progress.epoch + 1
        is_due = number % every == 0 if isinstance(every, int) else number in every
        if self._keras.validation_data is None or not is_due:
            return {}
        return {f"val_{name}": value for name, value in self._validate().items()}

    def _validate(self) -> Mapping[str, Any]:
        if self._trial_steps is None:
            return self._evaluate()
        before = Values(self._variables)
        found = self._evaluate()
        before.put_back()
        self._validation.require_same(numbers(found), numbers(self._evaluate()))
        return found

    def _evaluate(self) -> Mapping[str, Any]:
        job = self._keras
        x, y, weights = keras.utils.unpack_x_y_sample_weight(job.validation_data)
        self._validation.begin()
        with called_at_boundary("the model's evaluate", self.step, raised_in):
            found = self._model.evaluate(
                x,
                y,
                batch_size=None if isinstance(x, tf.data.Dataset) else job.validation_batch_size or job.batch_size,
                sample_weight=weights,
                steps=job.validation_steps,
                callbacks=self._callbacks.for_evaluate,
                verbose=0,
                return_dict=True,
            )
            return as_numbers(found)

    def _call(self, name: str, *arguments: Any, step: int, **options: Any) -> None:
        self._remembered = None
        self._callbacks.call(name, *arguments, step=step, **options)

    # ------------------------------------------------------------------ what is saved of it

    def _read_progress(self) -> Any:
        memory = self._memory() if self._before is None else self._before
        progress = vars(self._progress) | {"given": saveable(self._given())}  # the end of the epoch may be left
        if self._model.stop_training and self._progress.epoch_began is not None:
            progress |= {"stops": True, "settings": self._callbacks.settings}
        return {"progress": progress, "callbacks": memory}

    def _memory(self) -> Any:
        """Return the memory of the callbacks.

        It is read again only after a call, since it may hold the best weights.
        """
        if self._remembered is None:
            self._remembered = self._callbacks.memory()
        return self._remembered

    def _write_progress(self, values: Any) -> None:
        if self._is_done_before:  # they are of another call
            return
        self._take(dataclasses.replace(Progress(**values["progress"]), data=self._progress.data))
        self._callbacks.remember(values["callbacks"])
        self._remembered = None
        stops = bool(self._progress.stopped or self._progress.stops)
        if stops and not self._callbacks.are_as(self._progress.settings):
            why = self._progress.stopped or f"a callback wanted to stop in epoch {self._progress.epoch + 1}"
            log.info("%s; the callbacks have changed since, so training continues", why)
            self._progress.stopped, self._progress.stops = "", False
        if self._progress.stops:
            self._model.stop_training = True


def name_of(number: int) -> str:
    """Return the name in a checkpoint of a model of the run, from its number."""
    return f"model_{number}" if number else "model"


def read_weights(prefix: Path, model: Any, number: int, call: int) -> None:
    """Read the weights of one model of a checkpoint.

    Args:
      prefix: the checkpoint's.
      model: gets the weights.
      number: its number in the run.
      call: the number of the call of `fit` that trained it, for the error.

    Raises:
      DataError: it has other weights than the model that the run has in its place.
    """
    try:
        tf.train.Checkpoint(**{name_of(number): weights_alone(model)}).read(str(prefix)).expect_partial()
    except ValueError as error:
        raise DataError(
            f"{prefix} does not fit call {call + 1} of fit, whose model has other weights. Put the model back, or use "
            f"another `logdir`.\n{str(error).splitlines()[0]}"
        ) from error


def read_optimizer(prefix: Path, model: Any, number: int) -> None:
    """Read the state of a model's optimizer: its steps, its learning rate, and what it keeps of each weight.

    Args:
      prefix: the checkpoint's.
      model: its optimizer gets the state; it keeps its own if the state does not fit it.
      number: the number of the model in the run.
    """
    optimizer = model.optimizer
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    before = Values(optimizer.variables)
    try:
        place = {name_of(number): tf.train.Checkpoint(optimizer=optimizer)}
        tf.train.Checkpoint(**place).read(str(prefix)).expect_partial()
    except ValueError as error:
        before.put_back()
        why = str(error).splitlines()[0]
        log.info("the optimizer differs from that in %s: %s", prefix, why, extra={"event": "call"})


def read_callbacks(prefix: Path, model: Any, callbacks: Any) -> None:
    """Give callbacks the memory that a checkpoint has of them, as far as that needs no `on_train_begin`.

    Args:
      prefix: the checkpoint's.
      model: the model that they are called for.
      callbacks: as they are given to a KerasJob.
    """
    found = Callbacks(flat_callbacks(callbacks), model, epochs=None, steps=None, calls=False)
    found.put_back(stored(prefix, _STATE)["callbacks"], has_begun=False)


def _saved_progress(prefix: Path) -> Progress:
    try:
        return Progress(**stored(prefix, _STATE)["progress"])
    except (KeyError, TypeError) as error:
        raise DataError(f"{prefix} does not fit the job: it is not of a KerasJob. Use another `logdir`.") from error


def numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the logs that are numbers."""
    return {name: float(value) for name, value in logs.items() if isinstance(value, int | float)}
