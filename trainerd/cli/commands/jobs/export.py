"""`trainerd export`: package a checkpoint for use elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from trainerd.cli import chosen, completion, options
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.cli.usage import OneOf
from trainerd.daemon import tensorflow_import
from trainerd.system.staging import require_free

_ARCHIVES = {"tar.gz": ".tar.gz", "zip": ".zip"}


@click.command(
    "export",
    cls=CommandOfRun,
    examples={
        "trainerd export release": "Package the newest checkpoint into the new folder `release`.",
        "trainerd export digits best release --archive tar.gz": "Package the best one of a run as release.tar.gz.",
        "trainerd export sweeps/rates best release": "Package the best checkpoint of the best run of a sweep.",
    },
    exits={70: "The outputs differ from those of the checkpoint. Nothing was exported."},
)
@click.argument("words", metavar="[STEP|best|minimum] OUT", nargs=-1, required=True, shell_complete=completion.targets)
@chosen.metric_option
@click.option(
    "--format",
    "formats",
    type=OneOf(["savedmodel", "keras", "weights"]),
    multiple=True,
    help="The format; repeatable. Default: a SavedModel and, for a Keras model, a .keras file.",
)
@click.option("--archive", type=OneOf([*_ARCHIVES]), help="Write OUT.tar.gz or OUT.zip in place of a folder.")
@options.of_one_run
def command(
    words: tuple[str, ...], metric: str | None, formats: tuple[str, ...], archive: str | None, run: options.RunOptions
) -> None:
    """Package a checkpoint: its model, its metrics and the checksums of all files, in the new folder OUT.

    A separate process loads the model, and its outputs are compared with the checkpoint's. If they differ, nothing is
    exported. Default: the newest checkpoint. RUN may be the folder of a sweep, whose best run is packaged.
    """
    where, out = chosen.words_of(words, "OUT")
    folder = Path(out).absolute()
    target = folder.with_name(folder.name + _ARCHIVES[archive]) if archive else folder
    require_free(target)
    config, rundir, found = chosen.job_at(run, where, metric)
    with tensorflow_import.quiet():
        from trainerd.release.export import Release, release
    released = release(Release(config, rundir, found, formats), folder, target if archive else None)
    say(f"released step {found.step}: {target}")
    for form, compared in released.items():
        say(f"  {form}: loaded again, and compared: {compared}")
