"""The read-only view of all checkpoints of a run directory, from their manifests. Needs no TensorFlow."""

from __future__ import annotations

import os

from trainerd.checkpoints import checkpoint_state, manifest
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import LastCheckpoint


def resume_order(rundir: RunDirectory) -> list[int]:
    """The steps at which a start may resume, in the order in which they are to be tried.

    Newest first. Where `checkpoint` names an older one, a person edited it to go back: from that one downwards. Where
    it does not list the newest alone, the process died between the manifest and that file.
    """
    steps = rundir.steps()
    written = checkpoint_state.read(rundir)
    if not steps or written is None or written.named not in steps:
        return steps
    later = [step for step in steps if step > written.named and step not in written.listed]
    if len(later) == 1 and later[0] == steps[0] and written.listed:
        return steps
    return [step for step in steps if step <= written.named]


def is_disbelieved(rundir: RunDirectory) -> bool:
    """Whether there is a `checkpoint` that names no step of this run, where there are steps that it could name."""
    steps = rundir.steps()
    written = checkpoint_state.read(rundir)
    return bool(steps) and os.path.lexists(rundir.checkpoint_state) and (written is None or written.named not in steps)


def is_passed_over(rundir: RunDirectory) -> StateFile | None:
    """What `checkpoint` says, where a start takes a later one than it names all the same; None if it does not."""
    written, order = checkpoint_state.read(rundir), resume_order(rundir)
    return written if written is not None and written.named in order and order[0] > written.named else None


def as_last(rundir: RunDirectory, found: Manifest) -> LastCheckpoint:
    """A checkpoint as state.json tells of it. How long it took is not in its manifest."""
    return LastCheckpoint(found.step, str(rundir.prefix(found.step)), found.reason, None, found.size, found.at)


def newest(rundir: RunDirectory) -> Manifest | None:
    """The checkpoint at which the next start will resume, if its files verify; None if there is none.

    Another process may save and delete meanwhile: where one that was listed is gone, there is a newer one.
    """
    while True:
        steps, gone = resume_order(rundir), False
        for step in steps:
            try:
                return manifest.read(rundir.manifest(step))
            except DamagedError:
                gone = gone or not os.path.lexists(rundir.manifest(step))
        if not gone:
            return None
