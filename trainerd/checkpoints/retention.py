"""Which checkpoints may go. Pure: it returns verdicts, and the store deletes."""

from __future__ import annotations

from collections.abc import Sequence


def deletable(steps: Sequence[int], *, current: int, keep_last: int) -> list[int]:
    """The steps whose checkpoints may be deleted, oldest first.

    Args:
      steps: the steps that have a checkpoint, in any order.
      current: the one that was just published, or resumed from. Those after it are from before the run went
        back to an earlier point: they are kept until training passes them.
      keep_last: how many of the newest, `current` included, are kept.
    """
    line = sorted((step for step in steps if step <= current), reverse=True)
    return sorted(line[keep_last:])
