"""The checkpoints of the run directory that is copied, as the plan needs them."""

from __future__ import annotations

from collections.abc import Mapping

from trainerd.checkpoints import evaluations
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.catalogue import Catalogue
from trainerd.checkpoints.manifest import Manifest
from trainerd.checkpoints.retention import Policy
from trainerd.copies.plan import CopySituation
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.runs import Stamp, stamp_of


class LocalCheckpoints:
    """Reads the checkpoints of a run directory: each manifest again only when it has changed.

    Args:
      rundir: the run directory.
      policy: which checkpoints the copy keeps.
    """

    def __init__(self, rundir: RunDirectory, policy: Policy) -> None:
        self._rundir, self._policy = rundir, policy
        self._read: dict[int, tuple[Stamp | None, Manifest | None]] = {}

    def situation(self, copied: Mapping[int, Manifest]) -> CopySituation:
        """Return what the run has now, and what its copy has.

        Args:
          copied: the checkpoints that are copied.

        Raises:
          StorageError: the run directory cannot be read.
        """
        catalogue = Catalogue.read(self._rundir)
        self._read = {step: self._manifest(step) for step in catalogue.steps}
        local = {step: each for step, (_, each) in self._read.items() if each is not None}
        evaluated = self._rundir.evaluated() if self._policy.best is not None else set()
        metrics = {step: evaluations.figures(self._rundir, local[step]) for step in evaluated if step in local}
        order = [step for step in catalogue.resume_order if step in local]
        return CopySituation(local, copied, order, self._rundir.pinned(), metrics)

    def _manifest(self, step: int) -> tuple[Stamp | None, Manifest | None]:
        path = self._rundir.manifest(step)
        stamp = stamp_of(path)
        known = self._read.get(step)
        return known if known is not None and known[0] == stamp else (stamp, manifests.sound(path))
