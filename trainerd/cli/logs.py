"""`trainerd logs`: the log of a run, whatever started it."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TextIO

import click

from trainerd.cli import options
from trainerd.errors import NotRunningError


@click.command("logs")
@options.config_option
@options.logdir_option
@click.option("-f", "--follow", is_flag=True, help="Go on showing lines as they are written, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=50, show_default=True, help="How many lines.")
def command(config_path: Path | None, logdir: Path | None, follow: bool, lines: int) -> None:
    """Show the end of the run's log. Under systemd `journalctl -u trainerd` has the same lines, with fields."""
    path = options.find_rundir(config_path, logdir).log
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotRunningError(
            f"there is no log at {path}: {error.strerror}. A program of your own logs where it says, not there."
        ) from None
    with file:
        for line in deque(file, maxlen=lines):
            click.echo(line, nl=False)
        if follow:
            _follow(path, file)


def _follow(path: Path, file: TextIO) -> None:
    """Show what is appended, and go over to the new file where the log is rotated."""
    while True:
        while line := file.readline():
            click.echo(line, nl=False)
        time.sleep(0.2)
        try:
            rotated = path.stat().st_ino != _inode(file)
        except FileNotFoundError:
            continue
        if rotated:
            file = path.open(encoding="utf-8", errors="replace")


def _inode(file: TextIO) -> int:
    import os

    return os.fstat(file.fileno()).st_ino
