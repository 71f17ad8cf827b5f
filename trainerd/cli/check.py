"""`trainerd check`: try a job before it is trained for days."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from trainerd.cli import options
from trainerd.daemon import quiet
from trainerd.supervisor.rehearsal import rehearse


@click.command("check")
@options.config_option
def command(config_path: Path | None) -> None:
    """Validate the config, build the job, and run two steps, one save and one restore in a scratch folder.

    The run directory is not touched.
    """
    config = options.load_config(config_path)
    click.echo(f"config: {config.path or 'the digits job that ships'}: no mistakes")
    click.echo(f"logdir: {config.rundir}")
    os.chdir(config.folder)
    quiet.hush_tensorflow()
    with tempfile.TemporaryDirectory(prefix="trainerd-check-") as scratch, quiet.stderr_to(Path(scratch, "stderr")):
        from trainerd.sessions import load
    session = load.open_session(config)
    click.echo(f"job: {config.entry}: builds and traces")
    for line in rehearse(session, config.parsed_target()):
        click.echo(line)
    click.echo(f"All is well. `{options.command_line('run', config_path)}` trains it.")
