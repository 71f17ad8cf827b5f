"""`trainerd diff`: compare two checkpoints, or two runs at their common steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trainerd.checkpoints import checkpoint_state
from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import DamagedError, Manifest
from trainerd.cli import as_owner, options
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.config.fingerprint import differences
from trainerd.daemon import tensorflow_import
from trainerd.errors import DataError, UsageError
from trainerd.history.rollback import nearest
from trainerd.rundir.paths import RunDirectory

if TYPE_CHECKING:
    from trainerd.proof.traced.variables import Comparison

_SHOWN = 10  # variables


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
      rundir: its run directory.
      step: the checkpoint; None for all that both sides have.
    """

    rundir: RunDirectory
    step: int | None


@click.command(
    "diff",
    cls=CommandOfRun,
    examples={
        "trainerd diff 500 900": "Compare two checkpoints of the run of the current folder.",
        "trainerd diff runs/first runs/second": "Compare two runs at the steps that both have saved.",
    },
    exits={0: "The checkpoints are equal.", 1: "They differ.", 65: "A checkpoint is damaged."},
)
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@options.of_one_run
def command(one: str, other: str, run: options.RunOptions) -> None:
    """Compare two checkpoints, or two runs.

    A and B are each a step of this run, the path of a checkpoint such as runs/a/model.ckpt-500, or a run directory. Two
    run directories are compared at the steps that both have saved. Variables are compared bit for bit.
    """
    sides = [_side(said, run) for said in (one, other)]
    for side in sides:
        as_owner.require_owner(side.rundir, "has TensorFlow read its checkpoints")
    pairs = list(_pairs(*sides))
    with tensorflow_import.quiet():
        from trainerd.proof.traced.variables import Comparison
    is_equal = True
    for first, second in pairs:
        prefixes = [side.rundir.prefix(each.step) for side, each in zip(sides, (first, second), strict=True)]
        lines, opaque = _compare(first, second, Comparison(*prefixes))
        is_equal = is_equal and not lines
        head = f"step {first.step}" if first.step == second.step else f"steps {first.step} and {second.step}"
        left_out = [f"not compared: {', '.join(opaque)}"] if opaque else []
        say("\n".join([f"{head}: {'differ' if lines else 'equal'}", *(f"  {line}" for line in lines + left_out)]))
        if lines and len(pairs) > 1:
            break  # what follows differs for the same reason
    sys.exit(0 if is_equal else 1)


def _side(said: str, run: options.RunOptions) -> Side:
    """Return the side of the comparison that a person means by A or B.

    Raises:
      UsageError: there is no such thing.
    """
    if said.isascii() and said.isdigit():
        return Side(options.find_rundir(run), int(said))
    path = options.run_path(said).absolute()
    if path.is_dir():
        return Side(checkpoint_state.run_directory(path), None)
    basename, _, step = path.name.removesuffix(".index").removesuffix(".json").rpartition("-")
    if basename and step.isascii() and step.isdigit() and path.parent.is_dir():
        return Side(RunDirectory(path.parent, basename), int(step))
    raise UsageError(f"{said!r} is not a step, a run directory, or the path of a checkpoint, as run/model.ckpt-500.")


def _pairs(one: Side, other: Side) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield the checkpoints to compare.

    Raises:
      UsageError: there are none.
      DataError: one is damaged.
    """
    if one.step is None and other.step is None:
        common = sorted(set(one.rundir.steps()) & set(other.rundir.steps()))
        if not common:
            raise UsageError(f"{one.rundir.path} and {other.rundir.path} have no checkpoint of the same step.")
        yield from ((_read(one.rundir, step), _read(other.rundir, step)) for step in common)
        return
    steps = [side.step if side.step is not None else (one.step or other.step or 0) for side in (one, other)]
    yield _read(one.rundir, steps[0]), _read(other.rundir, steps[1])


def _read(rundir: RunDirectory, step: int) -> Manifest:
    if step not in rundir.steps():
        raise UsageError(f"{rundir.path} has no checkpoint of step {step}. {nearest(rundir.steps(), step)}")
    try:
        found = manifests.read(rundir.manifest(step))
        manifests.verify(found, rundir.path)
    except DamagedError as error:
        raise DataError(f"the checkpoint of step {step} in {rundir.path} is damaged: {error}") from error
    return found


def _compare(one: Manifest, other: Manifest, comparison: Comparison) -> tuple[list[str], list[str]]:
    """Compare variables, metrics, and what the two were trained with.

    Returns:
      What differs, a line each, and the names of what cannot be compared.
    """
    found = list(comparison.differences())
    lines = [f"{len(found)} of {comparison.count} variables differ; the first:"] if found else []
    lines += [f"  {each}" for each in found[:_SHOWN]]
    if one.step == other.step:
        lines += _metrics(one.metrics, other.metrics)
    lines += [str(each) for each in differences(one.fingerprint, other.fingerprint)]
    return lines, [name.partition("/.ATTRIBUTES/")[0] for name in comparison.opaque]


def _metrics(one: Mapping[str, float], other: Mapping[str, float]) -> Iterator[str]:
    for name in sorted({*one, *other}):
        ours, theirs = one.get(name), other.get(name)
        if ours != theirs and not (ours != ours and theirs != theirs):
            yield f"metrics.{name}: {ours} → {theirs}"
