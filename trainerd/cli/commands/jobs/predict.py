"""`trainerd predict`: write the predictions of a checkpoint as a CSV file."""

from __future__ import annotations

from pathlib import Path

import click

from trainerd.cli import chosen, completion, options
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath
from trainerd.daemon import tensorflow_import


@click.command(
    "predict",
    cls=CommandOfRun,
    examples={
        "trainerd predict -o predictions.csv": "Write the predictions of the newest checkpoint.",
        "trainerd predict digits 500 -o predictions.csv": "Write those of step 500 of the run `digits`.",
    },
)
@click.argument("words", metavar="[STEP|best|minimum]", nargs=-1, shell_complete=completion.targets)
@chosen.metric_option
@click.option(
    "-o",
    "--output",
    type=GivenPath(path_type=Path, dir_okay=False),
    required=True,
    help="The CSV file.",
)
@options.of_one_run
def command(words: tuple[str, ...], metric: str | None, output: Path, run: options.RunOptions) -> None:
    """Write the predictions of a checkpoint as a CSV file: one row for each example, with its id.

    Default: the newest checkpoint.
    """
    where, _ = chosen.words_of((*words, ""), "STEP")
    output = output.absolute()
    config, rundir, found = chosen.job_at(run, where, metric)
    with tensorflow_import.quiet():
        from trainerd.release.predict import predict
    rows = predict(config, rundir, found, output)
    say(f"wrote {rows:,} predictions of step {found.step}: {output}")
