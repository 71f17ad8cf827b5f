"""The numbers of a job that can be set while it trains, and their limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainerd.errors import EntryError

if TYPE_CHECKING:
    import tensorflow as tf

LEARNING_RATE = "learning_rate"


@dataclass(frozen=True)
class Settable:
    """A variable that `trainerd set` may set within limits. A value outside of them is rejected.

    Args:
      variable: a `tf.Variable` with one number.
      minimum: the least value. Default: 0 for a learning rate, which is a number whose name is `learning_rate` or ends
        in `.learning_rate`; otherwise none.
      maximum: the greatest value. Default: none.
    """

    variable: tf.Variable
    minimum: float | None = None
    maximum: float | None = None

    def __post_init__(self) -> None:
        if self.minimum is not None and self.maximum is not None and not self.minimum <= self.maximum:
            raise EntryError(f"settable: the minimum {self.minimum:g} is greater than the maximum {self.maximum:g}.")


@dataclass(frozen=True)
class Number:
    """The value and the limits of one number.

    Attributes:
      value: at this boundary; NaN if it cannot be set.
      minimum, maximum: its limits; infinite if it has none.
      fixed: why it cannot be set; empty if it can.
    """

    value: float
    minimum: float = -math.inf
    maximum: float = math.inf
    fixed: str = ""

    def refusal(self, name: str, value: float) -> str:
        """Return why it does not take this value, as a sentence; empty if it does."""
        if self.fixed:
            return f"{name} cannot be set: {self.fixed}."
        if not self.minimum <= value <= self.maximum:
            limits = [f"at least {self.minimum:g}"] * (self.minimum > -math.inf)
            limits += [f"at most {self.maximum:g}"] * (self.maximum < math.inf)
            return f"{name} must be {' and '.join(limits)}, and {value:g} was given."
        return ""


def is_learning_rate(name: str) -> bool:
    """Return whether a number of this name is a learning rate."""
    return name.rpartition(".")[2] == LEARNING_RATE


def number(name: str, value: float, *, minimum: float | None = None, maximum: float | None = None) -> Number:
    """Return a number with its limits. The lower limit of a learning rate is 0 by default."""
    least = minimum if minimum is not None else 0.0 if is_learning_rate(name) else -math.inf
    return Number(value, least, math.inf if maximum is None else maximum)


def with_limits(named: Mapping[str, tf.Variable | Settable]) -> dict[str, Settable]:
    """Return what a job names in `settable`, each with its limits. A plain variable has none of its own.

    Raises:
      EntryError: one is not a variable with one number.
    """
    found = {name: each if isinstance(each, Settable) else Settable(each) for name, each in named.items()}
    for name, settable in found.items():
        variable = settable.variable
        if not hasattr(variable, "assign") or getattr(variable, "shape", None) != ():
            raise EntryError(f"settable: {name!r} must be a variable with one number, and is {variable!r}.")
    return found
