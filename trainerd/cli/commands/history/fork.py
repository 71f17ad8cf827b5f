"""`trainerd fork`: a new run that begins at a checkpoint of another."""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from trainerd.cli import chosen, options
from trainerd.cli.advice import how_to_start, how_to_train_fork
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath
from trainerd.config import edit
from trainerd.config import parse as configs
from trainerd.config.bare_script import is_script
from trainerd.errors import UsageError
from trainerd.history.choice import choose
from trainerd.history.fork import fork
from trainerd.history.rollback import RollbackTarget
from trainerd.history.run_job import is_program, job_of
from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import remove_temporaries, storage, write_atomic
from trainerd.system.staging import require_free


@click.command(
    "fork",
    cls=CommandOfRun,
    examples={
        "trainerd fork 500 runs/second": "Make a run that begins at step 500.",
        "trainerd fork digits best runs/longer --set max_steps=9000": "Make one that trains longer.",
    },
)
@chosen.target
@click.argument("folder", metavar="NEWDIR", type=GivenPath(path_type=Path, file_okay=False))
@click.option("--set", "said", multiple=True, metavar="KEY=VALUE", help="A key of the new run's config; repeatable.")
@options.of_one_run
def command(
    where: str, folder: Path, said: tuple[str, ...], metric: str | None, line: int | None, run: options.RunOptions
) -> None:
    """Make a new run directory, NEWDIR, that starts at a checkpoint. The run itself is not changed and may train.

    With --set, a config for the new run is written beside the config of the run. It has the name of NEWDIR.
    """
    rundir, folder = options.run_to_change(run), folder.absolute()
    changes = edit.read_changes(said)
    target = RollbackTarget(choose(rundir, where, metric, line, chosen.configured_best(run, rundir)), line)
    require_free(folder)
    if not changes:
        fork(rundir, target, folder, changes)
        say(f"forked {target}. {_how_to_train(rundir, run, folder)} trains it.")
        return
    path, text = _config_of(folder, changes, run.config_path or options.config_of_start(run.logdir))
    with _written_first(path, text):
        fork(rundir, target, folder, changes)
    say(f"forked {target}. `{options.command_line('run', _short(path))}` trains it.")


@contextlib.contextmanager
def _written_first(path: Path, text: str) -> Iterator[None]:
    """Write the config before the fork is put in place, so that a kill leaves no fork without its config."""
    is_new = not path.exists()
    with storage(f"write {path}"):
        with contextlib.suppress(OSError):  # in a shared folder they may be another user's
            remove_temporaries(path.parent, of=path.name)  # of a fork that was killed
        write_atomic(path, text.encode())
    try:
        yield
    except BaseException:
        if is_new:
            path.unlink(missing_ok=True)
        raise


def _how_to_train(rundir: RunDirectory, run: options.RunOptions, folder: Path) -> str:
    """Return the command or program that trains a fork: that of the original run, with the new folder."""
    job = job_of(rundir)
    if job and is_program(job):
        if (known := how_to_train_fork(rundir, folder)) is not None:
            return known
        return f"{how_to_start(rundir, run)}, with the run directory {folder},"
    start = options.options_of_start(rundir, job, run)
    return f"`{options.command_line('run', start.config_path, folder)}`"


def _config_of(folder: Path, changes: dict[str, str], config_path: Path | None) -> tuple[Path, str]:
    """Return the path and the text of the config of a fork.

    Raises:
      ConfigError: a change makes it wrong.
      UsageError: there is another such file, or a key that a fork decides itself.
    """
    if "logdir" in changes:
        raise UsageError("--set logdir: NEWDIR is the run directory.")
    found = options.load_config(config_path)
    path = (found.path.parent if found.path is not None else Path.cwd()) / f"{folder.name}.toml"
    is_bare = found.path is None or is_script(found.path)
    logdir = os.path.relpath(folder, path.parent if is_bare else found.folder)
    places = edit.as_toml({"logdir": logdir, **edit.copy_beside(found, folder.name)})
    text = edit.changed(options.config_text(config_path), places | changes)
    with edit.blaming(changes):
        configs.parse(tomllib.loads(text), path=path)
    with storage(f"read {path}", missing_ok=True):
        if path.read_bytes() != text.encode():  # a fork that was killed leaves the same text
            raise UsageError(f"{path} exists: name another NEWDIR, or move that file.")
    return path, text


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
