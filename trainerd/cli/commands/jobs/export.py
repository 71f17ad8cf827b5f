"""`trainerd export`: package a checkpoint for use elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from trainerd.cli import chosen, completion, options
from trainerd.cli.say import say
from trainerd.cli.usage import OneOf
from trainerd.daemon import tensorflow_import
from trainerd.system.staging import require_free

_ARCHIVES = {"tar.gz": ".tar.gz", "zip": ".zip"}


@click.command("export")
@click.argument("words", metavar="[STEP|best|minimum] OUT", nargs=-1, required=True, shell_complete=completion.targets)
@chosen.metric_option
@click.option(
    "--format",
    "formats",
    type=OneOf(["savedmodel", "keras", "weights"]),
    multiple=True,
    help="May be repeated. Default: a SavedModel, and a .keras file of a Keras model.",
)
@click.option("--archive", type=OneOf([*_ARCHIVES]), help="Write OUT.tar.gz or OUT.zip, and no folder.")
@options.of_one_run
def command(
    words: tuple[str, ...], metric: str | None, formats: tuple[str, ...], archive: str | None, run: options.RunOptions
) -> None:
    """Write the model of a checkpoint, its metrics, and the checksums of all files into the new folder OUT.

    A separate process loads the model, and its outputs are compared with the checkpoint's. If they differ, nothing is
    exported. Default: the newest checkpoint.
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
