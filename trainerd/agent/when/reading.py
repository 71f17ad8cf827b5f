"""The answer of a probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class Reading(Generic[Value]):
    """The answer of a probe.

    Attributes:
      value: what was read; None if it cannot be.
      trouble: what is wrong, for the log; empty if nothing is.
    """

    value: Value | None
    trouble: str = ""
