"""`trainerd run`: train in the foreground."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import click
from logging_journald import check_journal_stream

from trainerd.cli import keys, options
from trainerd.cli.options import RunOptions
from trainerd.cli.say import say
from trainerd.cli.summary import summary
from trainerd.daemon.process import TrainerProcess
from trainerd.loop.outcome import Outcome
from trainerd.rundir.paths import RunDirectory


@click.command("run")
@options.of_training
def command(run: RunOptions, rank: int | None) -> None:
    """Train in the foreground, from where the run left off.

    Ctrl-C saves and exits; a second one exits at once. On a terminal the metrics are shown live, and the last line says
    which keys there are.
    """
    overrides = options.as_worker(run.overrides(), rank)
    written = options.load_config(run.config_path)
    config = overrides(written)
    with contextlib.ExitStack() as stack:

        def ended(outcome: Outcome) -> None:
            stack.close()  # the display
            if check_journal_stream():
                return  # Nobody types what is next into a journal.
            for line in summary(outcome, process.state, written, run, is_of_several=config.is_of_several):
                say(line)

        options_of_terminal: dict[str, Any] = {}
        if sys.stderr.isatty():
            from trainerd.cli.display import Display

            has_keys = keys.can_read()
            display = stack.enter_context(Display(rundir=RunDirectory(config.rundir) if has_keys else None))
            if has_keys:
                stack.enter_context(keys.keys_read(display.press, display.forget_keys))
            options_of_terminal = {"observers": [display.observe], "terminal": display.handler}
        process = TrainerProcess(config, overrides=overrides, ended=ended, **options_of_terminal)
        ended(process.run())
