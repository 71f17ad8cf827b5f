"""The read-only view of all checkpoints of a run directory, from their manifests. Needs no TensorFlow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from trainerd.checkpoints import checkpoint_state, manifest
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.manifest import Manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import LastCheckpoint


@dataclass(frozen=True)
class Catalogue:
    """The checkpoints of a run directory at one moment. A start reads it once.

    Attributes:
      steps: those that have a manifest, the newest first.
      written: what `checkpoint` says; None if it is missing or not understood.
      has_file: whether there is a file `checkpoint`.
    """

    steps: tuple[int, ...]
    written: StateFile | None
    has_file: bool

    @classmethod
    def read(cls, rundir: RunDirectory) -> Catalogue:
        """Read the catalogue of a run directory.

        Raises:
          StorageError: `checkpoint` cannot be read now.
        """
        steps = tuple(rundir.steps())
        return cls(steps, checkpoint_state.read(rundir), os.path.lexists(rundir.checkpoint_state))

    @property
    def resume_order(self) -> tuple[int, ...]:
        """The steps at which a start may resume, in the order in which they are to be tried.

        Newest first. If `checkpoint` names an older one, a person edited it to go back: from that one downwards. If it
        does not list the newest alone, the process died between the manifest and that file.
        """
        steps, written = self.steps, self.written
        if written is None or written.named not in steps:
            return steps
        later = [step for step in steps if step > written.named and step not in written.listed]
        if len(later) == 1 and later[0] == steps[0] and written.listed:
            return steps
        return tuple(step for step in steps if step <= written.named)

    @property
    def is_disbelieved(self) -> bool:
        """True if there is a `checkpoint` that names no step of this run, and there are steps that it could name."""
        return bool(self.steps) and self.has_file and (self.written is None or self.written.named not in self.steps)

    @property
    def passed_over(self) -> StateFile | None:
        """The content of `checkpoint`, if a start takes a later step than it names; None otherwise."""
        written, order = self.written, self.resume_order
        return written if written is not None and written.named in order and order[0] > written.named else None


def resume_order(rundir: RunDirectory) -> list[int]:
    """Return the steps at which a start may resume; see `Catalogue.resume_order`."""
    return list(Catalogue.read(rundir).resume_order)


def as_last(rundir: RunDirectory, found: Manifest) -> LastCheckpoint:
    """Return a checkpoint as state.json describes it. How long it took is not in its manifest."""
    return LastCheckpoint(found.step, str(rundir.prefix(found.step)), found.reason, None, found.size, found.at)


def fields_of(rundir: RunDirectory, found: Manifest | None) -> dict[str, Any]:
    """Return the fields of state.json that a checkpoint gives: its step, its metrics, and what it is."""
    return {
        "step": found.step if found is not None else 0,
        "metrics": dict(found.metrics) if found is not None else {},
        "measured": dict(found.measured) if found is not None else {},
        "last_checkpoint": as_last(rundir, found) if found is not None else None,
    }


def newest(rundir: RunDirectory) -> Manifest | None:
    """Return the checkpoint at which the next start will resume, if its files verify; None if there is none.

    Another process may save and delete meanwhile: if a listed one is gone, there is a newer one.
    """
    while True:
        steps, gone = resume_order(rundir), False
        for step in steps:
            if (found := manifest.sound(rundir.manifest(step))) is not None:
                return found
            gone = gone or not os.path.lexists(rundir.manifest(step))
        if not gone:
            return None
