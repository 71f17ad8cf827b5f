"""The definitions that a user hands to trainerd: a training step, its data, and the state that it changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from trainerd.job.settable import Settable


@dataclass(frozen=True)
class Program:
    """A function that takes the Supervisor and writes its own loop, as an entry may name one; or a script.

    Args:
      function: called once, under the daemon.
      has_settings: whether it says itself how often it saves, and how much it keeps; else trainerd.toml says it.
      takes_supervisor: whether it uses the Supervisor. If not, it gets None, and TensorFlow is not imported for it.
      may_take: the message if it opens no session, so that it was not meant to take the Supervisor; "" if it need not
        open one.
    """

    function: Callable[[Any], object]
    has_settings: bool = False
    takes_supervisor: bool = True
    may_take: str = ""


class Scheduled:
    """An object that trains by itself, on a schedule that is one of its methods: an Experiment."""

    model_dir: str | None = None
    schedules: tuple[str, ...] = ("train_and_evaluate",)  # its methods that are one
    train_nothing: frozenset[str] = frozenset()  # those of them that only read a run directory

    def trial(self) -> Job | GraphJob | None:
        """Return its training as a job, to check it, prove it and evaluate its past; None if that cannot be had."""
        return None

    def default_schedule(self) -> str:
        """Return the schedule of the task of this process."""
        return "train_and_evaluate"

    def program(self, schedule: str) -> Program:
        """Return the program that runs a schedule.

        Raises:
          ValueError: there is no such schedule.
        """
        run = getattr(self, schedule, None)
        if schedule not in self.schedules or not callable(run):
            known = ", ".join(sorted(name for name in self.schedules if callable(getattr(self, name, None))))
            raise ValueError(f"schedule = {schedule!r}: there is no such schedule. It has {known}.")
        return Program(lambda supervisor: run(), has_settings=True)


@dataclass(frozen=True)
class GraphJob:
    """A TensorFlow 1 graph to train. Build it inside the function that `entry` names.

    Args:
      graph: a `tf.Graph`. trainerd adds what it needs for checkpoints, and finalizes it.
      train_op: one step. It adds 1 to the global step.
      metrics: name to scalar tensor, fetched with each step. `loss` is checked for NaN.
      saver: a `tf.compat.v1.train.Saver` that says what is saved. Default: all variables.
      global_step: what counts the steps. Default: the graph's.
      summary_op: what is fetched on the summary schedule. Default: all summaries of the graph.
      init_fn: called with the session after the variables have been initialized, if there is no checkpoint.
      evaluate: called with the session at a boundary on the evaluation schedule; returns a dict of name to number.
      config: a `tf.compat.v1.ConfigProto` for the session.
      settable: name to variable, or to `Settable`, of what `trainerd set` may set.
      export: called with the session and a directory, writes the model for use elsewhere.
    """

    graph: tf.Graph
    train_op: tf.Operation | tf.Tensor
    metrics: Mapping[str, tf.Tensor] = field(default_factory=dict)
    saver: tf.compat.v1.train.Saver | None = None
    global_step: tf.Variable | tf.Tensor | None = None
    summary_op: tf.Tensor | None = None
    init_fn: Callable[[tf.compat.v1.Session], object] | None = None
    evaluate: Callable[[tf.compat.v1.Session], Mapping[str, Any]] | None = None
    config: tf.compat.v1.ConfigProto | None = None
    settable: Mapping[str, tf.Variable | Settable] = field(default_factory=dict)
    export: Callable[[tf.compat.v1.Session, Path], object] | None = None


@dataclass(frozen=True)
class KerasJob:
    """A compiled Keras model to train as `fit` trains it. Build it inside the function that `entry` names.

    Args:
      model: the model, compiled. Its own `train_step` is what runs, in the graph.
      data: a `tf.data.Dataset` of what `train_step` takes, such as (x, y); or arrays: (x, y) or (x, y, sample_weight),
        each an array, or a list, tuple or dict of arrays.
      validation_data: the same, for `evaluate` at the end of an epoch; None for none.
      steps_per_epoch: steps of an epoch. Default: the data once.
      callbacks: `keras.callbacks`; what they remember is saved too.
      epochs: after so many epochs training is over. Default: `max_steps`, a target or a callback ends it.
      validation_steps: batches of `validation_data` that are evaluated. Default: all.
      validation_freq: epochs from one validation to the next, or a list of the epochs that have one.
      batch_size: examples of a batch, if `data` is arrays.
      shuffle: whether arrays are shuffled again in each epoch.
      test_data: what `model.predict` takes, for `trainerd predict`; None for none.
      validation_batch_size: examples of a batch, if `validation_data` is arrays. Default: `batch_size`.
      initial_epoch: the number of the first epoch, from 0.
    """

    model: keras.Model
    data: tf.data.Dataset | tuple[Any, ...]
    validation_data: tf.data.Dataset | tuple[Any, ...] | None = None
    steps_per_epoch: int | None = None
    callbacks: Sequence[keras.callbacks.Callback] = ()
    epochs: int | None = None
    validation_steps: int | None = None
    validation_freq: int | Collection[int] = 1
    batch_size: int = 32
    shuffle: bool = True
    test_data: Any = None
    validation_batch_size: int | None = None
    initial_epoch: int = 0


@dataclass(frozen=True)
class Job:
    """A model to train. Build it inside the function that `entry` names.

    Args:
      train_step: one step of ordinary TensorFlow 2. Called with one batch (one element of `dataset`), or without
        arguments if there is no dataset. Returns a dict of name to scalar tensor, one scalar (it is named
        "loss"), or None. trainerd makes it a `tf.function`, unless it is one.
      dataset: a `tf.data.Dataset`, or None. Training ends with it; end it with `.repeat()` to continue.
      state: what `tf.train.Checkpoint(**state)` can track: models, optimizers, variables, generators. All of
        it is saved and restored; what is not in it starts over after a pause.
      evaluate: called at a boundary on the evaluation schedule; returns a dict of name to number. These metrics
        appear as `val_NAME`.
      summaries: called at a boundary on the summary schedule, with trainerd's writer as the default one:
        write `tf.summary.scalar(...)` and the like. `tf.summary.experimental.get_step()` is the global step.
      export: called with a directory, writes the model for use elsewhere.
      predict: returns a dict of column name to values, for `trainerd predict`.
      settable: name to `tf.Variable`, or to `Settable`, of what `trainerd set` may set, beside the learning rates of
        Keras' optimizers.
    """

    train_step: Callable[..., Any]
    dataset: tf.data.Dataset | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    evaluate: Callable[[], Mapping[str, Any]] | None = None
    summaries: Callable[[], None] | None = None
    export: Callable[[Path], None] | None = None
    predict: Callable[[], Mapping[str, Any]] | None = None
    settable: Mapping[str, tf.Variable | Settable] = field(default_factory=dict)
