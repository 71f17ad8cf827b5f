"""The names of `tf.estimator.experimental`."""

from typing import NoReturn

from trainerd.compat.estimator.missing import missing
from trainerd.programs.estimator.extend import call_logit_fn
from trainerd.programs.experiment.early_stopping import (
    make_early_stopping_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)

__all__ = [
    "call_logit_fn",
    "make_early_stopping_hook",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]


def __getattr__(name: str) -> NoReturn:
    raise missing(f"experimental.{name}")
