"""Points that Optuna chooses one after the other, by what the points before have reached.

Its study is a journal in the folder of the sweep. A trial has the number of its point, from 0. If a kill leaves a trial
without a config, it has the same values at the next call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainerd.config.metric_goals import Best
from trainerd.errors import UsageError
from trainerd.sweeps.halving import PointResult
from trainerd.sweeps.space import Axis, Choice, Point, Range, Space
from trainerd.system.durable_files import storage
from trainerd.system.extras import install_command

_JOURNAL = "optuna.log"


def require_optuna() -> Any:
    """Import Optuna, which takes a while.

    Raises:
      UsageError: it is not installed.
    """
    try:
        import optuna  # of an extra
    except ImportError:
        raise UsageError(
            f"--optuna: the package `optuna` is not installed. Install it with `{install_command('sweep')}`."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def chosen_points(
    folder: Path, space: Space, goal: Best, seed: int, results: Mapping[int, PointResult], count: int
) -> dict[int, Point]:
    """Report what points have reached, and ask for points until there are so many.

    Args:
      folder: of the sweep.
      space: what is tried.
      goal: what is to be reached.
      seed: of the draws.
      results: what each point has reached, by its number from 0.
      count: how many points there are to be.

    Returns:
      The points that have no result yet, by number.

    Raises:
      UsageError: Optuna is not installed.
      StorageError: the journal cannot be read or written.
    """
    optuna = require_optuna()
    with storage(f"use {folder / _JOURNAL}"):
        study, axes = _study(optuna, folder, goal, seed), _distributions(optuna, space)
        for trial in study.get_trials(deepcopy=False):
            result = results.get(trial.number)
            if result is not None and not trial.state.is_finished() and (result.is_finished or result.is_failed):
                is_sound = result.is_finished and math.isfinite(result.best)
                state = optuna.trial.TrialState.COMPLETE if is_sound else optuna.trial.TrialState.FAIL
                study.tell(trial.number, result.best if is_sound else None, state=state)
        while (made := len(study.get_trials(deepcopy=False))) < count:
            # Each call may be in a process of its own: a trial has a seed of its own.
            _study(optuna, folder, goal, seed + made).ask(axes)
        trials = study.get_trials(deepcopy=False)
    return {
        trial.number: {key: _value(axis, trial.params[key]) for key, axis in space.items()}
        for trial in trials
        if not trial.state.is_finished() and trial.number not in results
    }


def _study(optuna: Any, folder: Path, goal: Best, seed: int) -> Any:
    """Return the study of a sweep, with a sampler of this seed; make it if it is missing."""
    journal = optuna.storages.journal.JournalFileBackend(str(folder / _JOURNAL))
    return optuna.create_study(
        study_name=folder.name,
        storage=optuna.storages.JournalStorage(journal),
        sampler=optuna.samplers.TPESampler(seed=seed),
        load_if_exists=True,
        direction="minimize" if goal.is_least else "maximize",
    )


def _distributions(optuna: Any, space: Space) -> dict[str, Any]:
    return {key: _distribution(optuna, axis) for key, axis in space.items()}


def _distribution(optuna: Any, axis: Axis) -> Any:
    kinds = optuna.distributions
    if isinstance(axis, Choice):
        return kinds.CategoricalDistribution([json.dumps(each) for each in axis.values])
    if isinstance(axis, Range):
        return kinds.FloatDistribution(axis.low, axis.high, log=axis.is_log)
    return kinds.IntDistribution(axis.low, axis.high)


def _value(axis: Axis, found: Any) -> Any:
    """Return the value of a key for a parameter of a trial."""
    if isinstance(axis, Choice):
        return json.loads(found)
    return axis.rounded(found) if isinstance(axis, Range) else found
