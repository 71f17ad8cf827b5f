"""`trainerd evaluate`: evaluate old checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from trainerd.cli import as_owner, completion, options
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.cli.usage import Whole
from trainerd.config.schema import Config
from trainerd.daemon import tensorflow_import
from trainerd.errors import JobError, NotRunningError, UsageError
from trainerd.history.rollback import nearest
from trainerd.history.timeline import CheckpointMark, present_line
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.system.process_identity import be_modest
from trainerd.text import figure

if TYPE_CHECKING:
    from trainerd.release.evaluate import Result

POLL_SECS = 1.0


@click.command(
    "evaluate",
    cls=CommandOfRun,
    examples={
        "trainerd evaluate": "Evaluate the newest checkpoint.",
        "trainerd evaluate 500 900": "Evaluate the checkpoints of two steps.",
        "trainerd evaluate digits --all --follow": "Evaluate all checkpoints of a run, and each new one.",
    },
    exits={70: "A checkpoint could not be evaluated. The others were."},
)
@click.argument("steps", metavar="[STEP]...", type=Whole(min=0), nargs=-1, shell_complete=completion.steps)
@click.option("--all", "every", is_flag=True, help="All checkpoints of the run's current line.")
@click.option("--minima", is_flag=True, help="The checkpoints that were kept as minima of the loss.")
@click.option(
    "--since",
    type=Whole(min=0),
    metavar="STEP",
    shell_complete=completion.steps,
    help="The checkpoints of STEP and later.",
)
@click.option("--follow", is_flag=True, help="Evaluate each new one as it appears, until the run is over.")
@click.option("--again", is_flag=True, help="Also the checkpoints that were evaluated before.")
@click.option("--entry", metavar="MODULE:ATTRIBUTE", help="A job with the same state and other data.")
@options.of_one_run
def command(
    steps: tuple[int, ...],
    every: bool,
    minima: bool,
    since: int | None,
    follow: bool,
    again: bool,
    entry: str | None,
    run: options.RunOptions,
) -> None:
    """Evaluate checkpoints with the job's evaluation, and keep the results beside them. Default: the newest.

    It runs at low priority and may run beside the training. An interrupted command resumes where it was.
    """
    if bool(steps) + every + minima + (since is not None) > 1:
        raise UsageError("STEP, --all, --minima and --since exclude each other. Give one.")
    if entry is not None and ":" not in entry:
        raise UsageError(f"--entry: expected MODULE:ATTRIBUTE, such as job:job, got {entry!r}.")
    config = options.config_of_run(run)
    rundir = options.run_to_change(run)
    as_owner.require_own_job(rundir, config)

    def chosen() -> list[int]:
        return _chosen(rundir, steps, every=every or follow, minima=minima, since=since)

    if not chosen() and not follow:
        of = " that is a minimum of the loss" if minima else f" of step {since} or later" if since is not None else ""
        raise NotRunningError(f"{rundir.path} has no checkpoint{of} yet. `trainerd checkpoints` shows all.")
    _evaluate(
        replace(config, entry=entry or config.entry), rundir, entry or "", again, _batches(rundir, chosen, follow)
    )


def _chosen(rundir: RunDirectory, steps: tuple[int, ...], *, every: bool, minima: bool, since: int | None) -> list[int]:
    """Return the steps of the checkpoints that are to be evaluated, oldest first.

    Raises:
      UsageError: one that is named does not exist.
    """
    entries = [each for each in present_line(rundir) if CheckpointMark.DAMAGED not in each.marks]
    there = [each.step for each in entries]
    for step in steps:
        if step not in there:
            raise UsageError(f"{rundir.path} has no checkpoint of step {step}. {nearest(there, step)}")
    if steps:
        return list(steps)
    if minima:
        return [each.step for each in entries if CheckpointMark.MINIMUM in each.marks]
    if since is not None:
        return [step for step in there if step >= since]
    return there if every else there[-1:]


def _batches(rundir: RunDirectory, chosen: Callable[[], list[int]], follow: bool) -> Iterator[list[int]]:
    """Yield the steps to evaluate, and those that appear later."""
    seen = set[tuple[int, int]]()  # each step with its manifest: a run that goes back comes to the same step again
    while True:
        is_over = read_holder(rundir) is None
        found = {(step, _written_at(rundir, step)): step for step in chosen()}
        new = [step for key, step in found.items() if key not in seen]
        seen.update(found)
        yield new
        if not follow or (is_over and not new):
            return
        time.sleep(0 if new else POLL_SECS)


def _written_at(rundir: RunDirectory, step: int) -> int:
    try:
        return rundir.manifest(step).stat().st_mtime_ns
    except OSError:
        return 0


def _evaluate(config: Config, rundir: RunDirectory, entry: str, again: bool, batches: Iterator[list[int]]) -> None:
    from rich.console import Console
    from rich.progress import Progress

    be_modest()
    os.chdir(config.folder)
    with tensorflow_import.quiet():
        from trainerd.release.evaluate import Evaluator
    with tensorflow_import.uncollected():
        evaluator = Evaluator(config, rundir, entry=entry, again=again)
    failed = 0
    with Progress(console=Console(stderr=True), transient=True, disable=not os.isatty(2)) as progress:
        task = progress.add_task("evaluating", total=0)
        for steps in batches:
            progress.update(task, total=(progress.tasks[0].total or 0) + len(steps))
            for step in steps:
                result = evaluator.evaluate(step)
                failed += bool(result.error)
                say(_line(result))
                progress.advance(task)
    if failed:
        raise JobError(f"{failed} of the checkpoints could not be evaluated: see above.", step=0, sound=True)


def _line(result: Result) -> str:
    metrics = ", ".join(f"{name} {figure(value)}" for name, value in result.figures.items())
    return f"step {result.step}: {result.error or ', '.join(filter(None, [metrics, result.skipped]))}"
