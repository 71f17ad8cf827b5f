"""Checks whether the checkpoint from which the next start resumes verifies, and whether one is in quarantine."""

from __future__ import annotations

import os
from collections.abc import Iterator

from trainerd import text
from trainerd.checkpoints import latest
from trainerd.checkpoints.catalogue import Catalogue
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well
from trainerd.history import rollback
from trainerd.rundir.paths import RunDirectory

_MOST_BYTES = 4 << 30  # are read in less than a minute


def check(facts: Facts) -> Iterator[Finding]:
    """Read the newest one, unless that would take long; and those before it, if it is damaged."""
    yield from unread(facts)
    yield from quarantined(facts.rundir)
    if rollback.is_under_way(facts.rundir):
        yield warning("a rollback is under way, or was cut short", rollback.FINISHES)
    if facts.newest is None or facts.newest.size <= _MOST_BYTES:
        yield from verified(facts.rundir)
    else:
        large = f"step {facts.newest.step:,} has {text.size(facts.newest.size)}, which is too much to read here"
        yield well(f"{large}; each start verifies it")


def unread(facts: Facts) -> Iterator[Finding]:
    """Yield a finding for everything in the run directory that could not be read."""
    yield from (problem(said, "fix that, and type this again.") for said in facts.unread)
    if facts.state is None and not facts.unread and os.path.lexists(facts.rundir.state):
        cure = "the next start rewrites it: nothing is lost with it."
        yield warning(f"{facts.rundir.state} says nothing that can be understood", cure)


def verified(rundir: RunDirectory) -> Iterator[Finding]:
    """Yield the finding on whether a start finds a checkpoint that verifies. Nothing is moved."""
    found, damaged = latest.newest_sound(rundir, Catalogue.read(rundir))
    if damaged and found is None:
        yield problem(
            f"none verifies: {_why(damaged)}", "bring one back from a backup: no start overwrites damaged ones."
        )
    elif damaged and found is not None:
        yield problem(
            f"a start resumes from step {found.step:,}: {_why(damaged)}",
            "check the disk (`dmesg`, `smartctl -a`); bring the later one back from a backup, if there is one.",
        )
    elif found is not None:
        yield well(f"step {found.step:,}, {text.size(found.size)}, verifies")
    elif unmanaged := rundir.unmanaged_checkpoints():
        yield problem(
            f"{unmanaged[-1]} is there without a manifest: a start refuses to begin over it",
            "set another `logdir`, or move it away.",
        )
    else:
        yield well("none yet: a start begins at step 0")


def quarantined(rundir: RunDirectory) -> Iterator[Finding]:
    """Yield a finding if a checkpoint did not verify at an earlier start."""
    folder = rundir.quarantine
    names = os.listdir(folder) if folder.is_dir() and not folder.is_symlink() else []
    if names:
        yield warning(
            f"{folder} has {len(names)} {'file' if len(names) == 1 else 'files'} of checkpoints that did not verify",
            "`trainerd events` says when and why; check the disk, and delete them.",
        )


def _why(damaged: dict[int, str]) -> str:
    return "; ".join(f"step {step}: {why}" for step, why in damaged.items())
