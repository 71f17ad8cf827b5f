"""`trainerd prove`: prove that an interrupted run of a job equals one without interruptions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.options import RunOptions
from trainerd.cli.say import say
from trainerd.daemon import tensorflow_import
from trainerd.errors import UsageError


@click.command("prove")
@options.of_trial
@click.option("--steps", type=options.Whole(min=2), default=100, show_default=True, help="The steps of each run.")
@click.option(
    "--interruptions",
    type=options.Whole(min=1),
    default=4,
    show_default=True,
    help="How often the second is interrupted.",
)
@click.option("--seed", type=options.Whole(min=0), default=0, help="The seed of the moments of interruption.")
@click.option(
    "--workers", type=options.Whole(1, 64), default=1, help="How many workers train together, on this machine."
)
@click.option(
    "--keep", type=options.GivenPath(path_type=Path, file_okay=False), help="Keep the runs in this new folder."
)
def command(run: RunOptions, steps: int, interruptions: int, seed: int, workers: int, keep: Path | None) -> None:
    """Check that interruptions do not change this job's result.

    Trains some steps without a stop, and again with pauses and SIGKILLs, in a scratch folder, and compares every batch,
    every metric of every step and every variable, bit for bit. The run directory is not touched.
    """
    from trainerd.proof.prove import Proof  # and NumPy with it

    if keep is not None and keep.exists():
        raise UsageError(f"{keep} exists already; --keep takes a new folder.")
    config = run.overrides()(options.load_config(run.config_path))
    tensorflow_import.prepare()
    with tempfile.TemporaryDirectory(prefix="trainerd-prove-") as scratch:
        folder = Path(scratch) if keep is None else keep.absolute()
        proof = Proof(config, folder, steps=steps, interruptions=interruptions, seed=seed, workers=workers)
        for line in proof.lines():
            say(line)
