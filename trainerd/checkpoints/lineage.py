"""The changes made to a run on its way to a checkpoint, beside training. Each manifest has all of them.

Repeating them at the same steps gives the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SET, SKIP, BACK = "set", "skip", "back"
MOST_NAMED = 64  # elements of skipped batches


@dataclass(frozen=True)
class Change:
    """One thing that was done at a boundary.

    Attributes:
      kind: SET: a number was set; SKIP: batches were read without a step; BACK: the run went back to this boundary.
      step: the boundary.
      name: what was set; empty for others.
      value: what it was set to; how many batches were skipped; the step that went wrong.
      why: for a person.
    """

    kind: str
    step: int
    value: int | float
    name: str = ""
    why: str = ""

    def __str__(self) -> str:
        """Return the change in a line."""
        if self.kind == SET:
            said = f"{self.name} set to {self.value:g}"
        elif self.kind == SKIP:
            count = int(self.value)
            said = f"{count} {'batch' if count == 1 else 'batches'} skipped"
        else:
            said = f"went back from step {int(self.value)}"
        return f"step {self.step}: {said}" + (f" ({self.why})" if self.why else "")

    def with_elements(self, indices: Sequence[int]) -> Change:
        """Return this skip with the elements of the batches that were skipped, if they are known."""
        if not indices:
            return self
        named = ", ".join(str(index) for index in indices[:MOST_NAMED])
        more = f" and {len(indices) - MOST_NAMED} more" if len(indices) > MOST_NAMED else ""
        why = self.why.partition("elements ")[0].removesuffix("; ")  # a skip that is done again names them again
        return replace(self, why=f"{why}; elements {named}{more}" if why else f"elements {named}{more}")
