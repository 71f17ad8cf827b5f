"""Points that Optuna chooses one after the other, by what the points before have reached.

Its study is a journal in the folder of the sweep. A trial has the number of its point, from 0. If a kill leaves a trial
without a config, it has the same values at the next call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainerd.config.metric_goals import Best
from trainerd.errors import UsageError
from trainerd.sweeps.halving import PointResult
from trainerd.sweeps.space import Axis, Choice, Point, Range, Space
from trainerd.system.durable_files import storage
from trainerd.system.extras import install_command

_JOURNAL = "optuna.log"
_MADE = "trainerd:made"  # of the study: how many of its trials have been made into points
_REMOVED = PointResult(is_failed=True)


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


class Study:
    """The study of a sweep, on disk.

    Args:
      folder: of the sweep.
      space: what is tried.
      goal: what is to be reached.
      seed: of the draws.

    Raises:
      UsageError: Optuna is not installed.
    """

    def __init__(self, folder: Path, space: Space, goal: Best, seed: int) -> None:
        self._optuna = require_optuna()
        self._folder, self._space, self._goal, self._seed = folder, space, goal, seed

    def grow(
        self, results: Mapping[int, PointResult], make: Callable[[int, Point], None], *, most: int, at_a_time: int
    ) -> None:
        """Report what points have reached, and make the next ones. A point that a person has removed stays away.

        Args:
          results: what each point that is there has reached, by its number from 0.
          make: makes a point, by its number.
          most: how many points the sweep has at last.
          at_a_time: how many of them may be under way.

        Raises:
          StorageError: the journal cannot be read or written.
        """
        with storage(f"use {self._folder / _JOURNAL}"):
            study, axes = self._opened(0), _distributions(self._optuna, self._space)
            made = study.user_attrs.get(_MADE, 0)
            for trial in _under_way(study):
                result = results.get(trial.number, _REMOVED if trial.number < made else PointResult())
                if result.is_finished or result.is_failed:
                    self._tell(study, trial.number, result)
            while (count := len(study.get_trials(deepcopy=False))) < most and len(_under_way(study)) < at_a_time:
                self._opened(count).ask(axes)  # each call may be in a process of its own: a trial has its own seed
            for trial in _under_way(study):
                if trial.number not in results:
                    make(trial.number, {key: _value(axis, trial.params[key]) for key, axis in self._space.items()})
            if count != made:
                study.set_user_attr(_MADE, count)

    def _tell(self, study: Any, number: int, result: PointResult) -> None:
        is_sound = result.is_finished and math.isfinite(result.best)
        states = self._optuna.trial.TrialState
        study.tell(number, result.best if is_sound else None, state=states.COMPLETE if is_sound else states.FAIL)

    def _opened(self, draw: int) -> Any:
        """Return the study, with a sampler that has a seed for this draw; make it if it is missing."""
        storages, samplers = self._optuna.storages, self._optuna.samplers
        return self._optuna.create_study(
            study_name=self._folder.name,
            storage=storages.JournalStorage(storages.journal.JournalFileBackend(str(self._folder / _JOURNAL))),
            sampler=samplers.TPESampler(seed=self._seed + draw),
            load_if_exists=True,
            direction="minimize" if self._goal.is_least else "maximize",
        )


def _under_way(study: Any) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if not trial.state.is_finished()]


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
