"""`trainerd check`: try a job before it is trained for days."""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

import click

from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.options import RunOptions
from trainerd.cli.say import say
from trainerd.config.bare_script import is_script
from trainerd.daemon import tensorflow_import
from trainerd.history.run_job import is_program
from trainerd.proof.check import EPOCH_STEPS, rehearse
from trainerd.rundir.paths import RunDirectory
from trainerd.script.run import require_syntax


class _Warnings(logging.StreamHandler[TextIO]):
    """Prints warnings, and counts them."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setLevel(logging.WARNING)
        self.setFormatter(logging.Formatter("warning: %(message)s"))
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        self.count += 1
        super().emit(record)


@click.command(
    "check",
    cls=CommandWithExamples,
    examples={
        "trainerd check": "Try the job of the current folder.",
        "trainerd check train.py -- --batch-size 64": "Try a script with its arguments.",
    },
    exits={
        0: "The job works.",
        69: "The job could not be loaded.",
        70: "A step, the save or the restore failed.",
        78: "The config is wrong.",
    },
)
@options.of_trial
def command(run: RunOptions) -> None:
    """Validate the config, build the job, and run two steps, one save and one restore in a scratch folder.

    For a KerasJob the two steps count as an epoch. So the end of an epoch is tried too, with a validation, the
    callbacks and a third step.

    The run directory is not changed.
    """
    warnings, logger = _Warnings(), logging.getLogger("trainerd")
    logger.addHandler(warnings)
    logger.propagate = False  # what a library has the root logger print, each warning would be printed twice
    try:
        is_begun = _check(run)
    finally:
        logger.removeHandler(warnings)
        logger.propagate = True
    found = "warning" if warnings.count == 1 else "warnings"
    verdict = f"It works; read the {found} above" if warnings.count else "All is well"
    train = options.command_line("run", run.config_path, options_of_start=[*run.set_options(), *run.of_script()])
    say(
        f"{verdict}. `{train}` takes up the run that has begun, if its checkpoint fits."
        if is_begun
        else f"{verdict}. `{train}` trains it."
    )


def _check(run: RunOptions) -> bool:
    """Check it. Returns whether the run has begun."""
    config = run.overrides()(options.load_config(run.config_path))
    if is_program(config.entry):
        require_syntax(config)
    if config.path is not None and is_script(config.path):
        say(f"script: {config.path}: parses")
    else:
        say(f"config: {config.path or 'the digits job that ships'}: no mistakes")
    say(f"logdir: {config.rundir}")
    os.chdir(config.folder)
    with tensorflow_import.quiet():
        from trainerd import open_job
        from trainerd.sessions.input import written_files
    with written_files.removed():
        session = open_job.open_session(config, trial_steps=EPOCH_STEPS)
        say(f"job: {config.entry}: builds and traces")
        for line in rehearse(session, config):
            say(line)
    return bool(RunDirectory(config.rundir).steps())
