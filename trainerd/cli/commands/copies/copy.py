"""`trainerd copy`: keep a copy of a run elsewhere."""

from __future__ import annotations

import contextlib
import signal
import threading
from dataclasses import replace

import click

from trainerd.cli import as_owner, options
from trainerd.cli.advice import how_to_start, require_run
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.cli.usage import Real
from trainerd.config.destination import Destination
from trainerd.config.schema import Config
from trainerd.copies.connect import connect
from trainerd.copies.contents import JobFiles
from trainerd.copies.copier import CopiedRun
from trainerd.copies.process import copy_once, follow, only_copier, policy_of, writer_of
from trainerd.daemon import logs
from trainerd.errors import ConfigError, NotRunningError, UsageError
from trainerd.history.run_job import is_program, job_of
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.system.process_identity import be_modest
from trainerd.text import counted

SENDS = "sends files of the run elsewhere"


@click.command(
    "copy",
    cls=CommandWithExamples,
    examples={
        "trainerd copy": "Follow the run of the current folder, and copy it to the URL of its config.",
        "trainerd copy digits --to file:///mnt/nas/digits --once": "Copy what the run `digits` has now.",
    },
    exits={
        74: "With --once: the destination could not be read or written.",
        75: "Another process copies this run, or another run directory writes to the URL.",
        78: "The config or the credentials are wrong, or the URL holds the copy of another run.",
    },
)
@options.of_one_argument
@click.option("--to", metavar="URL", help="The destination. Default: `to` in the table [copy] of the config.")
@click.option("--once", is_flag=True, help="Copy the present checkpoints and files, then exit.")
@click.option("--max-mbit", type=Real(0.0), help="The upload limit, in Mbit/s. Default: the config's `max_mbit`.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Become the writer of a copy that another machine or run directory wrote.",
)
@click.option("--while-training", is_flag=True, help="Exit when no process trains the run and all of it is copied.")
def command(
    run: options.RunOptions, to: str | None, once: bool, max_mbit: float | None, take_over: bool, while_training: bool
) -> None:
    """Copy checkpoints, events, config and source of a run to a URL, and each new checkpoint as it appears.

    It runs at low priority until Ctrl-C or SIGTERM. If the config has `[copy]`, `trainerd run` and `trainerd start` run
    it with --while-training. A checkpoint counts as copied when its bytes were verified at the destination. `trainerd
    fetch URL DIR` restores the run on any machine.
    """
    if once and while_training:
        raise UsageError("--once and --while-training contradict each other.")
    rundir = options.run_to_change(run)
    try:
        require_run(rundir)
    except NotRunningError:
        if run.logdir is not None:
            raise
        start = how_to_start(rundir, run, "run")
        raise NotRunningError(f"{rundir.path} has no run yet. {start} starts it; start the copy after that.") from None
    as_owner.require_owner(rundir, SENDS)
    config, copied = run_to_copy(rundir, run)
    destination = destination_of(to, config)
    most = max_mbit if max_mbit is not None else config.copy.max_mbit if config is not None else 0.0
    stop = threading.Event()
    be_modest()
    with only_copier(rundir):
        if once:
            with contextlib.closing(connect(destination, most)) as copy:
                status = copy_once(copied, copy, takes_over=take_over).status
            if status.step is None:
                say(f"copied the files of the run to {destination}, and no checkpoint: none is whole yet")
            else:
                count = counted(len(status.steps), "checkpoint")
                say(f"The copy at {destination} is complete: {count}, newest step {status.step:,}.")
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: stop.set())
        with logs.shown("info"):
            follow(
                replace(copied, to=str(destination)),
                lambda: connect(destination, most),
                stop,
                takes_over=take_over,
                is_over=lambda: while_training and read_holder(rundir) is None,
            )


def run_to_copy(rundir: RunDirectory, run: options.RunOptions) -> tuple[Config | None, CopiedRun]:
    """Return the config of a run, and what of the run is copied. The run of a program has no config.

    Raises:
      ConfigError: the config is wrong.
    """
    job = job_of(rundir)
    start = options.options_of_start(rundir, job, run)
    has_config = start.config_path is not None or run.logdir is None
    if not has_config or (job and is_program(job) and not job.endswith(".py")):
        return None, CopiedRun(rundir, None, policy_of(None), writer_of(rundir))
    config = options.config_of_run(start)
    files = JobFiles.of(config, options.config_text(config.path))
    return config, CopiedRun(rundir, files, policy_of(config), writer_of(rundir))


def destination_of(to: str | None, config: Config | None) -> Destination:
    """Return where a run is copied to.

    Raises:
      UsageError: --to is not a URL.
      ConfigError: nothing names a destination.
    """
    url = to if to is not None else config.copy.to if config is not None else None
    if url is None:
        raise ConfigError(
            "nothing says where this run is copied to. Set `to` in the table [copy] of its config, or give --to URL."
        )
    try:
        return Destination.parse(url)
    except ValueError as error:
        raise UsageError(f"--to: {error}.") from None
