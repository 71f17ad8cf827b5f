"""`trainerd init`: a config and a small job to start from."""

from __future__ import annotations

from pathlib import Path

import click

from trainerd.cli.options import command_line
from trainerd.cli.say import say
from trainerd.config import parse as configs
from trainerd.errors import UsageError
from trainerd.system.durable_files import storage

_STARTER = Path(__file__).resolve().parents[3] / "examples" / "starter"
_NAMES = (configs.NAME, "job.py")


@click.command("init")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def command(directory: Path) -> None:
    """Write a commented trainerd.toml and a small job into DIR. They train as they stand.

    Files that are there already are never replaced.
    """
    if there := [name for name in _NAMES if (directory / name).exists()]:
        raise UsageError(f"{directory} has a {there[0]} already; nothing was written. Choose another folder.")
    with storage(f"write into {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        for name in _NAMES:
            (directory / name).write_bytes((_STARTER / name).read_bytes())
    config = directory / configs.NAME
    for path, what in zip((config, directory / "job.py"), ("what is trained, and when", "the job"), strict=True):
        say(f"wrote {path}: {what}")
    say("\nNext:")
    say(f"  {command_line('check', config)}   try the job: two steps, one save, one restore")
    say(f"  {command_line('run', config)}     train it")
