"""The rules that decide which checkpoints are sent, in which order, and which are dropped there. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from trainerd.checkpoints import retention
from trainerd.checkpoints.manifest import Manifest
from trainerd.checkpoints.retention import Policy


@dataclass(frozen=True)
class CopySituation:
    """The checkpoints of a run, and those of its copy.

    Attributes:
      local: the checkpoints of the run directory, by step.
      copied: the checkpoints whose manifests are at the destination, by step.
      order: the steps at which the run resumes, in the order in which they are tried.
      pinned: the steps that a person has pinned.
      metrics: the metrics of a step, if its evaluations give others than its manifest.
    """

    local: Mapping[int, Manifest]
    copied: Mapping[int, Manifest]
    order: Sequence[int]
    pinned: Collection[int] = ()
    metrics: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def uploads(self, policy: Policy) -> list[int]:
        """Return the steps to send, the one that the run resumes from first, then the newest.

        What the policy would not keep at the destination is not sent.
        """
        everything = {**self.copied, **self.local}
        dropped = self._deletable(everything, policy)
        sent = {step for step, each in self.local.items() if _is_same(each, self.copied.get(step))}
        wanted = self.local.keys() - dropped - sent
        first = self.order[0] if self.order else None
        return sorted(wanted, key=lambda step: (step != first, -step))

    def deletions(self, policy: Policy) -> list[int]:
        """Return the steps to drop at the destination, oldest first. What is not sent yet takes nothing's place."""
        return sorted(self._deletable(self.copied, policy))

    def _deletable(self, found: Mapping[int, Manifest], policy: Policy) -> set[int]:
        current = next((step for step in self.order if step in found), max(found, default=None))
        if current is None:
            return set()
        points = retention.points_of(found.values(), self.metrics)
        return set(retention.deletable(points, current=current, policy=policy, pinned=self.pinned))


def _is_same(one: Manifest, other: Manifest | None) -> bool:
    """Return whether two checkpoints of a step are the same: a step that was trained again has another."""
    return other is not None and (one.at, one.files) == (other.at, other.files)


def garbage(objects: Collection[str], manifests: Collection[Manifest], named: Collection[str]) -> set[str]:
    """Return the objects that nothing names.

    Args:
      objects: all that there are.
      manifests: those of the checkpoints at the destination.
      named: what the indexes name.
    """
    needed = {record.xxh128 for each in manifests for record in each.files.values()} | set(named)
    return set(objects) - needed
