"""`trainerd logs`: the log of a run, whatever started it."""

from __future__ import annotations

import io
import os
import time
from collections import deque
from pathlib import Path
from typing import TextIO

import click

from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.cli.usage import Whole
from trainerd.errors import NotRunningError
from trainerd.system.durable_files import storage
from trainerd.system.regular_files import open_to_read

_LINE_BYTES = 4096  # of the end of the log that are read, for each line that is wanted


@click.command(
    "logs",
    cls=CommandWithExamples,
    examples={
        "trainerd logs -f": "Show the log of the run of the current folder, and follow it.",
        "trainerd logs digits --lines 200": "Show the last 200 lines of the run `digits`.",
    },
    exits={69: "The run has no log."},
)
@options.of_one_argument
@click.option("-f", "--follow", is_flag=True, help="Show new lines as they are written, until Ctrl-C.")
@click.option("-n", "--lines", type=Whole(min=0), default=50, show_default=True, help="The number of lines.")
def command(run: options.RunOptions, follow: bool, lines: int) -> None:
    """Show the end of the run's log. Under systemd, `journalctl -u trainerd` shows the same lines."""
    path = options.asked_rundir(options.find_rundir(run)).log
    if not os.path.lexists(path):
        raise NotRunningError(f"there is no log at {path}. A program of your own writes its log elsewhere.")
    with _open(path) as file:
        _skip_to_end(file, lines * _LINE_BYTES)
        for line in deque(file, maxlen=lines):
            say(line, nl=False)
        if follow:
            _follow(path, file)
    while follow:
        with _open(path) as file:
            _follow(path, file)


def _open(path: Path) -> TextIO:
    with storage(f"read {path}"):
        return io.TextIOWrapper(open_to_read(path), encoding="utf-8", errors="replace")


def _skip_to_end(file: TextIO, count: int) -> None:
    """Go to where at most so many bytes are left, and a line begins."""
    size = os.fstat(file.fileno()).st_size
    if size > count:
        file.seek(size - count)
        file.readline(count)


def _follow(path: Path, file: TextIO) -> None:
    """Show what is appended, until the log is rotated."""
    is_rotated = False
    while not is_rotated:
        with storage(f"read {path}", missing_ok=True):
            is_rotated = path.lstat().st_ino != os.fstat(file.fileno()).st_ino
        while line := file.readline(_LINE_BYTES):  # after that check: nothing is appended to a log that was rotated
            say(line, nl=False)
        if not is_rotated:
            time.sleep(0.2)
