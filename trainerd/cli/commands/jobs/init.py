"""`trainerd init`: a config and a small job to start from."""

from __future__ import annotations

from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath
from trainerd.config import parse as configs
from trainerd.errors import UsageError
from trainerd.system.durable_files import storage

_EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@click.command(
    "init",
    cls=CommandWithExamples,
    examples={
        "trainerd init mnist": "Write mnist/trainerd.toml and mnist/job.py.",
        "trainerd init . --keras": "Write a config here, for the Keras script train.py.",
    },
)
@click.argument("directory", metavar="DIR", type=GivenPath(path_type=Path, file_okay=False))
@click.option("--keras", is_flag=True, help="Write a Keras script, train.py, in place of the job.")
def command(directory: Path, keras: bool) -> None:
    """Write a commented trainerd.toml and a small job into DIR. They train as they are.

    Existing files are kept. If DIR has a job.py, or with --keras a train.py, only the config is written.
    """
    starter = _EXAMPLES / ("keras_starter" if keras else "starter")
    config, job = directory / configs.NAME, directory / ("train.py" if keras else configs.JOB)
    if config.exists():
        raise UsageError(f"{directory} has a {configs.NAME} already, so nothing was written. Choose another directory.")
    has_job = job.exists()
    with storage(f"write into {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        for path in [config] if has_job else [config, job]:
            path.write_bytes((starter / path.name).read_bytes())
    say(f"wrote {config}: what is trained, and when")
    if has_job and keras:
        say(f"kept {job}: its `model.fit` is the run")
    elif has_job:
        say(f"kept {job}: `entry` in {configs.NAME} must name what it trains")
    else:
        say(f"wrote {job}: the job")
    say("\nNext:")
    named = None if directory.resolve() == Path.cwd() else config  # commands find the config of the current folder
    say(f"  {options.command_line('check', named)}   try the job: two steps, one save, one restore")
    say(f"  {options.command_line('run', named)}     train it")
