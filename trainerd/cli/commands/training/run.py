"""`trainerd run`: train in the foreground."""

from __future__ import annotations

import contextlib
import sys

import click
from logging_journald import check_journal_stream

from trainerd.cli import keys, options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.options import RunOptions
from trainerd.cli.say import say
from trainerd.cli.summary import summary
from trainerd.cli.when_notice import say_when
from trainerd.copies.beside import CopierBeside
from trainerd.daemon.process import TrainerProcess
from trainerd.loop.outcome import Outcome
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer


@click.command(
    "run",
    cls=CommandWithExamples,
    examples={
        "trainerd run": "Train the config of the current folder. Ctrl-C saves and exits; the next `run` resumes.",
        "trainerd run --config fast.toml --max-steps 5000": "Train another config, until step 5000.",
        "trainerd run train.py -- --batch-size 64": "Run a script. The words after `--` are its arguments.",
    },
    exits={
        0: "The run is paused or finished.",
        65: "No checkpoint can be used, or the same step fails again and again.",
        69: "The job could not be loaded.",
        70: "The job failed.",
        74: "The run directory could not be read or written.",
        75: "Another process trains in the run directory.",
        78: "The config is wrong.",
    },
)
@options.of_training
def command(run: RunOptions, rank: int | None) -> None:
    """Train in the foreground. A run that has a checkpoint resumes from it.

    Ctrl-C saves and exits; a second one exits at once. A terminal shows the metrics live, and the keys in the last
    line.
    """
    overrides = options.as_worker(run.overrides(), rank)
    written = options.load_config(run.config_path)
    config = overrides(written)
    say_when(config)
    with contextlib.ExitStack() as stack:

        def ended(outcome: Outcome) -> None:
            stack.close()  # the display
            if check_journal_stream():
                return  # Nobody types what is next into a journal.
            for line in summary(outcome, process.state, written, run, is_of_several=config.is_of_several):
                say(line)

        observers: list[Observer] = [CopierBeside(config).observe]
        terminal = None
        if sys.stderr.isatty():
            from trainerd.cli.display import Display

            has_keys = keys.can_read()
            display = stack.enter_context(Display(rundir=RunDirectory(config.rundir) if has_keys else None))
            if has_keys:
                stack.enter_context(keys.keys_read(display.press, display.forget_keys))
            observers.append(display.observe)
            terminal = display.handler
        process = TrainerProcess(config, overrides=overrides, ended=ended, observers=observers, terminal=terminal)
        ended(process.run())
