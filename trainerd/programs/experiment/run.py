"""`trainerd.run_experiment`: what `tf.contrib.learn.learn_runner.run` was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainerd.programs.estimator.arguments import names_of_arguments
from trainerd.programs.estimator.run_config import RunConfig
from trainerd.programs.experiment.experiment import Experiment
from trainerd.programs.experiment.schedules import default_schedule

tf1 = tf.compat.v1


def run_experiment(
    experiment_fn: Callable[..., Experiment],
    output_dir: str | None = None,
    schedule: str | None = None,
    run_config: RunConfig | None = None,
    hparams: Any = None,
) -> Any:
    """Make an Experiment, and run one of its schedules.

    Args:
      experiment_fn: called with `output_dir`, or with `run_config` and `hparams`; returns an Experiment.
      output_dir: the run directory, for an `experiment_fn` of the first kind.
      schedule: the name of a method of the Experiment. Default: by the task of `run_config`.
      run_config: the settings, with a `model_dir`, for an `experiment_fn` of the second kind.
      hparams: hyperparameters.

    Returns:
      What the schedule returns.

    Raises:
      ValueError: both kinds are mixed, something is missing, or there is no such schedule.
      TypeError: `experiment_fn` is not a function or returns no Experiment, or the schedule is not a method.
    """
    if not callable(experiment_fn):
        raise TypeError(f'Experiment builder "{experiment_fn}" is not callable.')
    experiment = make_experiment(experiment_fn, output_dir, run_config, hparams)
    if schedule is None:
        config = run_config if run_config is not None else getattr(experiment.estimator, "config", None)
        schedule = default_schedule(config)
    if not hasattr(experiment, schedule):
        known = sorted(name for name in dir(experiment) if name[0] != "_" and callable(getattr(experiment, name)))
        tf1.logging.error("Schedule references non-existent task %s. Allowed values: %s", schedule, known)
        raise ValueError(f"Schedule references non-existent task {schedule}")
    task = getattr(experiment, schedule)
    if not callable(task):
        raise TypeError(f"Schedule references non-callable member {schedule}")
    return task()


def make_experiment(
    experiment_fn: Callable[..., Experiment], output_dir: str | None, run_config: RunConfig | None, hparams: Any
) -> Experiment:
    """Call an `experiment_fn` of either kind; see `run_experiment`."""
    if output_dir is not None and run_config is not None:
        raise ValueError("Cannot provide both `output_dir` and `run_config`")
    if output_dir is None and run_config is None:
        raise ValueError("Must set value for `output_dir` or `run_config`")
    if run_config is not None:
        if not isinstance(run_config, RunConfig):
            raise ValueError(f"`run_config` must be `trainerd.RunConfig` instance, given: {run_config}")
        if not run_config.model_dir:
            raise ValueError("Must specify a model directory `model_dir` in `run_config`.")
        if "hparams" not in names_of_arguments(experiment_fn) and hparams is not None:
            raise ValueError("`hparams` is given, and `experiment_fn` does not take it.")
        experiment = experiment_fn(run_config=run_config, hparams=hparams)
    else:
        if hparams is not None:
            raise ValueError("Must set `hparams` as None for `experiment_fn` with `output_dir`.")
        if not output_dir:
            raise ValueError("Must specify an output directory")
        experiment = experiment_fn(output_dir=output_dir)
    if not isinstance(experiment, Experiment):
        raise TypeError(f"Experiment builder did not return an Experiment instance, got {type(experiment)} instead.")
    if run_config is not None and getattr(experiment.estimator, "model_dir", run_config.model_dir) != (
        run_config.model_dir
    ):
        raise RuntimeError(
            "`RunConfig` instance is expected to be used by the `Estimator` inside the `Experiment`. expected "
            f"{run_config.model_dir}, but got {experiment.estimator.model_dir}"
        )
    return experiment
