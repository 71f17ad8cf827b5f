"""The checkpoint that a person names for a command that reads one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import click

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.manifest import Manifest
from trainerd.cli import as_owner, completion, options
from trainerd.cli.usage import Whole
from trainerd.config import parse as configs
from trainerd.config.metric_goals import Best
from trainerd.config.schema import Config
from trainerd.errors import NotRunningError, TrainerdError, UsageError
from trainerd.history.choice import BEST, MINIMUM, choose
from trainerd.history.rollback import RollbackTarget, require_target
from trainerd.rundir.paths import RunDirectory
from trainerd.sweeps.spec import NAME as SPEC
from trainerd.sweeps.standing import best_of_sweep, is_sweep
from trainerd.system.durable_files import storage

metric_option = click.option(
    "--best",
    "--metric",
    "metric",
    metavar="METRIC",
    shell_complete=completion.metrics,
    help="The best checkpoint by this metric.",
)


def target(command: options.Command) -> options.Command:
    """Give a command the checkpoint that it goes to: its first argument, --metric and --line."""
    for option in (
        click.option("--line", type=Whole(min=1), help="The number of the earlier line that has STEP."),
        click.option(
            "--metric",
            metavar="METRIC",
            shell_complete=completion.metrics,
            help="The metric of `best`, such as val_accuracy. Default: the config's `best`.",
        ),
        click.argument("where", metavar="STEP|best|minimum", shell_complete=completion.targets),
    ):
        command = option(command)
    return command


def words_of(words: Sequence[str], last: str) -> tuple[str | None, str]:
    """Return the words of a command that may begin with a checkpoint: that, or None, and the last one.

    Raises:
      UsageError: there are more.
    """
    if len(words) > 2:
        raise UsageError(f"expected a checkpoint and {last}, got {' '.join(words)!r}.")
    if len(words) == 1 and _names_a_checkpoint(words[0]):
        raise UsageError(f"{last} is missing after the checkpoint {words[0]!r}.")
    return (words[0] if len(words) == 2 else None), words[-1]


def _names_a_checkpoint(word: str) -> bool:
    return word in (BEST, MINIMUM) or word.isdigit()


def job_at(run: options.RunOptions, where: str | None, metric: str | None) -> tuple[Config, RunDirectory, Manifest]:
    """Choose the job of a run and a checkpoint, for a command that runs the job's code, and go to the job's folder.

    Args:
      run: the run, or the folder of a sweep, whose best run is meant.
      where: a step, `best` or `minimum`; None for the newest. Of a sweep, it is `best`.
      metric: the metric of `best`, which it implies.

    Returns:
      The config, the run directory, and the checkpoint; it is verified.

    Raises:
      ConfigError: the config is wrong.
      UsageError: the checkpoint does not exist or does not verify; or root would run the job of another user.
      NotRunningError: the run has no checkpoint.
    """
    if run.logdir is not None and is_sweep(run.logdir):
        run, metric = _best_of_sweep(run, where, metric)
    config = options.config_of_run(run)
    rundir = options.find_rundir(run)
    as_owner.require_own_job(rundir, config)
    found = _checkpoint(rundir, where, metric, configured_best(run, rundir))
    os.chdir(config.folder)
    return config, rundir, found


def _best_of_sweep(run: options.RunOptions, where: str | None, metric: str | None) -> tuple[options.RunOptions, str]:
    """Return the best run of the sweep that is named as the run, and the metric by which it is the best.

    Raises:
      UsageError: the sweep is another user's, whose job would run; another checkpoint is named than the best one; or
        there is none yet, see `best_of_sweep`.
      StorageError: the folder cannot be read.
    """
    assert run.logdir is not None
    with storage(f"read {run.logdir}"):
        owners = {run.logdir.stat().st_uid, (run.logdir / SPEC).lstat().st_uid} - {0, os.geteuid()}
    if owners:
        raise UsageError(
            f"the sweep {run.logdir} belongs to uid {max(owners)}. Only its owner may run its jobs. To trust one of "
            "them, name its config with --config."
        )
    if where not in (None, BEST) or (where is None and metric is None):
        raise UsageError(f"{run.logdir} is a sweep. Name its best checkpoint: `{run.logdir} {BEST}`, or --best METRIC.")
    if run.config_path is not None:
        raise UsageError(f"{run.logdir} is a sweep, and --config names one run. Give one.")
    config, metric = best_of_sweep(run.logdir, metric)
    return options.RunOptions(config), metric


def configured_best(run: options.RunOptions, rundir: RunDirectory) -> Best | None:
    """Return the goal of `best` in the config of a run; None if it names none, or is not known or cannot be read."""
    path = run.config_path or options.config_of_start(run.logdir) or Path(configs.NAME)
    with contextlib.suppress(TrainerdError):
        config = configs.load(path)
        if config.rundir.resolve() == rundir.path.resolve():
            return config.parsed_best()
    return None


def _checkpoint(rundir: RunDirectory, where: str | None, metric: str | None, best: Best | None) -> Manifest:
    """Return the checkpoint that is meant; it is verified."""
    if where is None and metric is None:
        newest = catalogue.newest(rundir)
        if newest is None:
            raise NotRunningError(f"{rundir.path} has no checkpoints yet.")
        return require_target(rundir, RollbackTarget(newest.step))
    if where is not None and not _names_a_checkpoint(where):
        raise UsageError(
            f"expected a step, `{BEST}` or `{MINIMUM}`, got {where!r}. For the newest checkpoint, leave STEP out."
        )
    return require_target(rundir, RollbackTarget(choose(rundir, where or BEST, metric, best=best)))
