"""The specs of `train_and_evaluate`, as `tf.estimator.TrainSpec` and `EvalSpec` were."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import tensorflow as tf

from trainerd.programs.estimator.hooks import checked_hooks, checked_listeners
from trainerd.programs.experiment.export.exporters import Exporter

tf1 = tf.compat.v1

_HOOKS = "All hooks must be `SessionRunHook` instances"
_LISTENERS = "All saving_listeners must be `CheckpointSaverListener` instances"


class _TrainFields(NamedTuple):
    input_fn: Callable[..., Any] | None
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


class TrainSpec(_TrainFields):
    """The training.

    Args:
      input_fn: the input; None for that of a `trainerd.Job`.
      max_steps: the global step at which it ends. None: never.
      hooks: `SessionRunHook`s.
      saving_listeners: `CheckpointSaverListener`s.

    Raises:
      ValueError: `max_steps` is not positive.
      TypeError: an argument has another type.
    """

    def __new__(
        cls,
        input_fn: Callable[..., Any] | None,
        max_steps: int | None = None,
        hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        saving_listeners: Iterable[tf.compat.v1.train.CheckpointSaverListener] | None = None,
    ) -> Self:
        _require_function(input_fn)
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        return super().__new__(
            cls,
            input_fn,
            max_steps,
            tuple(checked_hooks(hooks, _HOOKS)),
            tuple(checked_listeners(saving_listeners, _LISTENERS)),
        )


class _EvalFields(NamedTuple):
    input_fn: Callable[..., Any] | None
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Exporter, ...]
    start_delay_secs: float
    throttle_secs: float
    throttle_steps: int


class EvalSpec(_EvalFields):
    """The evaluations, and what is exported after each.

    Args:
      input_fn: the data; None for what a `trainerd.Job` evaluates itself.
      steps: how many batches. None: all.
      name: of the evaluation, for its curves.
      hooks: `SessionRunHook`s.
      exporters: one `Exporter`, or several.
      start_delay_secs: how long an evaluator waits before it begins.
      throttle_secs: between the beginnings of two evaluations, at least.
      throttle_steps: between two evaluated checkpoints, at least. Unlike seconds, the same in each run.

    Raises:
      ValueError: a number is not positive, or two exporters have the same name.
      TypeError: an argument has another type.
    """

    def __new__(
        cls,
        input_fn: Callable[..., Any] | None,
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        exporters: Iterable[Exporter] | Exporter | None = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
        throttle_steps: int = 0,
    ) -> Self:
        _require_function(input_fn)
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        for what, value in (
            ("start_delay_secs", start_delay_secs),
            ("throttle_secs", throttle_secs),
            ("throttle_steps", throttle_steps),
        ):
            if value < 0:
                raise ValueError(f"Must specify {what} >= 0, given: {value}")
        return super().__new__(
            cls,
            input_fn,
            steps,
            name,
            tuple(checked_hooks(hooks, _HOOKS)),
            _checked_exporters(exporters),
            start_delay_secs,
            throttle_secs,
            throttle_steps,
        )


def _require_function(input_fn: Any) -> None:
    if input_fn is not None and not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn}")


def _checked_exporters(given: Any) -> tuple[Exporter, ...]:
    if not given:
        return ()
    exporters = [given] if isinstance(given, Exporter) else given
    try:
        found = tuple(exporters)
    except TypeError:
        found = (given,)
    if not all(isinstance(each, Exporter) for each in found):
        raise TypeError(f"`exporters` must be an Exporter, an iterable of Exporter, or `None`, found {given}.")
    names = [each.name for each in found]
    for name in names:
        if not name:
            raise ValueError(f"An Exporter cannot have a name that is `None` or empty. All exporter names: {names}")
        if not isinstance(name, str):
            raise ValueError(f"An Exporter must have a string name. Given: {type(name)}")
    if len(set(names)) < len(names):
        raise ValueError(
            "`exporters` must have unique names. Such a name cannot be `None`. All exporter names: " + str(names)
        )
    return found
