"""`trainerd tensorboard`: look at a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trainerd.cli import options


@click.command("tensorboard", context_settings={"ignore_unknown_options": True})
@options.config_option
@options.logdir_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to serve at.")
@click.option("--port", default=6006, show_default=True, type=click.IntRange(0, 65535), help="The port; 0: any.")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
def command(config_path: Path | None, logdir: Path | None, host: str, port: int, more: tuple[str, ...]) -> None:
    """Serve a run directory in TensorBoard, on this machine only unless --host says otherwise.

    What else is given goes to TensorBoard as it is.
    """
    rundir = options.find_rundir(config_path, logdir)
    rundir.create()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments = [sys.executable, "-m", "tensorboard.main", "--logdir", str(rundir.path)]
    arguments += ["--host", host, "--port", str(port), "--reload_interval", "2", *more]
    os.execv(sys.executable, arguments)
