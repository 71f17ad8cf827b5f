"""`trainerd fetch`: restore a run from its copy."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath
from trainerd.config.destination import Destination
from trainerd.copies.connect import connect
from trainerd.copies.fetch import LATEST, FetchedRun, fetch
from trainerd.errors import UsageError
from trainerd.history.choice import BEST


@click.command(
    "fetch",
    cls=CommandWithExamples,
    examples={
        "trainerd fetch s3://bucket/runs/digits digits": "Restore the whole run into the new folder `digits`.",
        "trainerd fetch file:///mnt/nas/digits digits best": "Restore its best checkpoint alone.",
    },
    exits={
        64: "The folder is not empty, or the copy has no checkpoint STEP.",
        65: "The URL holds no copy, no checkpoint in it verifies, or a newer trainerd wrote it.",
        74: "The copy could not be read, or the folder could not be written.",
    },
)
@click.argument("url", metavar="URL")
@click.argument("folder", metavar="DIR", type=GivenPath(path_type=Path, file_okay=False))
@click.argument("where", metavar=f"[STEP|{BEST}|{LATEST}]", required=False)
def command(url: str, folder: Path, where: str | None) -> None:
    """Restore a run from its copy into a new folder.

    It has the run directory, the config and the source of the job. Each byte is verified. The folder appears as a
    whole or not at all. Without STEP all checkpoints of the copy are fetched. The data that the job reads are not in
    the copy: put them where the job expects them.
    """
    try:
        destination = Destination.parse(url)
    except ValueError as error:
        raise UsageError(f"URL: {error}.") from None
    folder = folder.absolute()
    with contextlib.closing(connect(destination)) as copy:
        found = fetch(copy, folder, where, say)
    _warn(found, destination)
    if found.config is not None:
        start = f"`{options.command_line('run', _short(found.config))}`"
    else:
        start = f"The program of the run, with the run directory {found.rundir.path},"
    say(f"{start} resumes the run from step {found.resumes_at:,}. The data that the job reads were not copied.")


def _warn(found: FetchedRun, destination: Destination) -> None:
    for step in found.missing:
        say(f"warning: the checkpoint of step {step:,} is damaged in the copy, and was left out.", err=True)
    if (writer := found.about.writer) is not None:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.about.at))
        config, logdir = (_short(found.config), None) if found.config is not None else (None, found.rundir.path)
        take_over = options.command_line("copy", config, logdir, ("--to", str(destination), "--take-over"))
        say(
            f"warning: {writer.logdir} on {writer.host} writes to this copy since {when}. Do not train the run in both "
            f"places. `{take_over}` continues the copy from here.",
            err=True,
        )


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
