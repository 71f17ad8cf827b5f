"""A stage, and the table of its transitions."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

S = TypeVar("S", bound=enum.Enum)


class Stages(Generic[S]):
    """Holds a stage, which changes only as a table allows.

    Args:
      first: the first stage.
      table: for each stage, the stages that may follow it. A stage may always follow itself.

    Attributes:
      now: the stage.
    """

    def __init__(self, first: S, table: Mapping[S, Collection[S]]) -> None:
        self.now = first
        self._table = table

    def enter(self, stage: S) -> None:
        """Change to another stage.

        Raises:
          RuntimeError: the table does not have this transition. That is an error of trainerd's own.
        """
        if stage is not self.now and stage not in self._table[self.now]:
            raise RuntimeError(f"{stage} cannot follow {self.now}")
        self.now = stage
