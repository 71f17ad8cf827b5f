"""`trainerd prove`: prove that an interrupted run of a job equals one without interruptions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.options import RunOptions
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath, Whole
from trainerd.daemon import tensorflow_import
from trainerd.errors import UsageError


@click.command(
    "prove",
    cls=CommandWithExamples,
    examples={
        "trainerd prove": "Interrupt 100 steps of the job of the current folder four times.",
        "trainerd prove --steps 500 --interruptions 8 --seed 1": "Interrupt 500 steps eight times, at other moments.",
    },
    exits={0: "The runs are the same, bit for bit.", 70: "They differ, or the job cannot be interrupted."},
)
@options.of_trial
@click.option("--steps", type=Whole(min=2), default=100, show_default=True, help="The number of steps of each run.")
@click.option(
    "--interruptions",
    type=Whole(min=1),
    default=4,
    show_default=True,
    help="How often the second run is interrupted.",
)
@click.option("--seed", type=Whole(min=0), default=0, help="The seed of the steps at which it is interrupted.")
@click.option("--workers", type=Whole(1, 64), default=1, help="How many workers train together on this machine.")
@click.option("--keep", type=GivenPath(path_type=Path, file_okay=False), help="Keep the runs in this new folder.")
def command(run: RunOptions, steps: int, interruptions: int, seed: int, workers: int, keep: Path | None) -> None:
    """Check that interruptions do not change this job's result.

    The command trains some steps without a stop, and the same steps again with pauses and SIGKILLs, in a scratch
    folder. Then it compares every batch, every metric of every step and every variable, bit for bit. The run directory
    is not changed.
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
