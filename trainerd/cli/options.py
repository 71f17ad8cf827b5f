"""The options that commands share, and the config or run directory that they choose."""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from trainerd.config import parse as configs
from trainerd.config.schema import Config
from trainerd.errors import StorageError, UsageError
from trainerd.rundir import registry
from trainerd.rundir.all_runs import all_paths
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import LARGEST, read_state
from trainerd.system.absolute import absolute
from trainerd.workers.plan import make_plan

Command = Callable[..., Any]


class _Run(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A run: its folder, or a name that `trainerd list` shows."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Find the run. What is no folder and no name is taken for a folder that is not there yet."""
        path = Path(value)
        if os.path.isfile(path):  # noqa: PTH113  no error where it may not be looked at
            self.fail(f"Directory {str(value)!r} is a file.", param, ctx)
        is_argument = param is not None and param.param_type_name == "argument"
        if os.path.lexists(path):
            return _of_job(path, ctx) if is_argument else path
        paths = all_paths()
        if (found := registry.find(str(value), paths)) is not None:
            return found
        near = difflib.get_close_matches(str(value), registry.names(paths).values(), n=1)
        if is_argument:
            hint = f" Did you mean {near[0]}?" if near else " `trainerd list` shows those that there are."
            self.fail(f"there is no run {str(value)!r}, and no folder.{hint}", param, ctx)
        return path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names of the runs, and folders."""
        found = registry.names(all_paths()).values()
        named = [CompletionItem(name) for name in sorted(found) if name.isprintable() and name.startswith(incomplete)]
        return named or [CompletionItem(incomplete, type="dir")]


def _note_run(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    ctx.meta[_NOTED] = value


def _chosen_run(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    noted: Path | None = ctx.meta.get(_NOTED)
    if value is not None and noted is not None:
        raise UsageError("give the run once: as an argument, or as --logdir.")
    return value or noted


def _of_job(folder: Path, ctx: click.Context | None) -> Path:
    """The run directory that a folder means: that of the config in it, if nothing was trained in the folder itself."""
    config = folder / configs.NAME
    if not os.path.isfile(config) or os.path.lexists(RunDirectory(folder.absolute()).lock):  # noqa: PTH113
        return folder
    if ctx is not None:
        ctx.meta[_CONFIG] = config
    return configs.load_rundir(config)


RUN = _Run()
_NOTED, _CONFIG = "trainerd.run", "trainerd.config"
_DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits.toml"

config_option = click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The config. Default: ./trainerd.toml.",
)
logdir_option = click.option(
    "--logdir",
    type=RUN,
    callback=_chosen_run,
    help="The run directory, or the run's name, in place of the config's.",
)
run_argument = click.argument("run", type=RUN, required=False, is_eager=True, expose_value=False, callback=_note_run)
_new_logdir_option = click.option(
    "--logdir", type=click.Path(path_type=Path, file_okay=False), help="The run directory, in place of the config's."
)
max_steps_option = click.option(
    "--max-steps", type=click.IntRange(1, LARGEST), help="Train until this step, whatever the config says."
)
forever_option = click.option("--forever", is_flag=True, help="Train on, past `max_steps` and `target`.")
accept_changes_option = click.option(
    "--accept-changes",
    is_flag=True,
    help="Go on although the dataset is not the one whose position was saved.",
)


rank_option = click.option(
    "--rank", type=click.IntRange(min=0), help="Which worker of the cluster this is. Default: TRAINERD_RANK."
)


def of_a_run(command: Command) -> Command:
    """The options of the commands that train, on all machines."""
    for option in (accept_changes_option, forever_option, max_steps_option, _new_logdir_option, config_option):
        command = option(command)
    return command


def of_training(command: Command) -> Command:
    """The options of the commands that train in this process."""
    return of_a_run(rank_option(command))


def arguments(
    config_path: Path | None, logdir: Path | None, max_steps: int | None, forever: bool, accept_changes: bool
) -> list[str]:
    """The options of a run as they are typed."""
    given = {"--config": config_path, "--logdir": logdir, "--max-steps": max_steps}
    found = [part for name, value in given.items() if value is not None for part in (name, str(value))]
    return [*found, *["--forever"] * forever, *["--accept-changes"] * accept_changes]


def load_config(config_path: Path | None) -> Config:
    """The config of --config, of the current folder, or the digits job.

    Raises:
      ConfigError: it is wrong.
    """
    path = _find_config(config_path)
    return _digits() if path is None else configs.load(path)


def config_of_run(config_path: Path | None, logdir: Path | None) -> Config:
    """The config for a command that reads a run: that of --config, the one that the run was started with, or another.

    Raises:
      ConfigError: it is wrong.
    """
    if config_path is None and logdir is not None:
        ctx = click.get_current_context(silent=True)
        named = ctx.meta.get(_CONFIG) if ctx is not None else None
        config_path = named or _config_of_start(absolute(logdir))
        if config_path is None and _is_of_digits(absolute(logdir)):  # whatever job is in this folder
            return overrides(logdir, None, False)(_digits())
    return overrides(logdir, None, False)(load_config(config_path))


def _config_of_start(logdir: Path) -> Path | None:
    """The config that a run was started with, if it is still there."""
    found = (run.config for run in registry.known() if absolute(run.path) == logdir)
    return next((path for path in found if path is not None and path.exists()), None)


def _is_of_digits(logdir: Path) -> bool:
    with contextlib.suppress(StorageError):
        state = read_state(RunDirectory(logdir).state)
        return state is not None and state.job == _digits().entry
    return False


def config_text(config_path: Path | None) -> str:
    """The text of the config that `load_config` reads."""
    return (_find_config(config_path) or _DIGITS).read_text(encoding="utf-8-sig")


def _find_config(config_path: Path | None) -> Path | None:
    if config_path is not None:
        return config_path / configs.NAME if config_path.is_dir() else config_path
    return Path(configs.NAME) if Path(configs.NAME).exists() else None


def _digits() -> Config:
    return configs.parse(tomllib.loads(_DIGITS.read_text(encoding="utf-8")), folder=Path.cwd())


def overrides(
    logdir: Path | None, max_steps: int | None, forever: bool, accept_changes: bool = False
) -> Callable[[Config], Config]:
    """The command line's changes of a config, as a function that a reload calls again.

    Raises:
      UsageError: the options contradict each other.
    """
    if forever and max_steps is not None:
        raise UsageError("--forever and --max-steps contradict each other.")

    where = str(absolute(logdir)) if logdir is not None else None  # now: the daemon works in another folder

    def apply(config: Config) -> Config:
        config = replace(config, accept_changes=accept_changes)
        if where is not None:
            config = replace(config, logdir=where)
        if max_steps is not None:
            config = replace(config, max_steps=max_steps, target=None)
        return replace(config, max_steps=None, target=None) if forever else config

    return apply


def as_worker(apply: Callable[[Config], Config], rank: int | None) -> Callable[[Config], Config]:
    """Those changes, and the worker that this process is: of commands that train. Others look at the run from outside.

    Args:
      apply: what `overrides` gave.
      rank: what the command line says.
    """

    def apply_as_worker(config: Config) -> Config:
        config = apply(config)
        plan = make_plan(config.cluster, os.environ, rank)
        if plan is None:
            return config
        return replace(config, rank=plan.rank, addresses=tuple(map(str, plan.workers)))

    return apply_as_worker


def find_rundir(config_path: Path | None, logdir: Path | None) -> RunDirectory:
    """The run directory of a command. Mistakes in the config since the start do not matter.

    Raises:
      ConfigError: the config cannot be read, or names none.
      UsageError: it is a link of another user's.
    """
    if logdir is not None:
        return _trusted(absolute(logdir))
    path = _find_config(config_path)
    return _trusted(_digits().rundir if path is None else configs.load_rundir(path))


def run_path(said: str) -> Path:
    """A folder, or that of the run of this name.

    Raises:
      UsageError: several runs have the name.
    """
    return RUN.convert(said, None, None)


def asked_rundir(rundir: RunDirectory) -> RunDirectory:
    """Where to ask whoever trains a run for something, on this machine.

    That is the run directory, unless only workers of the run that are not the chief are on this machine: then it is
    that of one of them, which passes on what it is asked for.
    """
    if read_holder(rundir) is not None:
        return rundir
    return next((each for each in rundir.workers() if read_holder(each) is not None), rundir)


def _trusted(path: Path) -> RunDirectory:
    """A run directory. A link to one may be a trap of another user, who can write to the folder that the link is in."""
    if path.is_symlink() and (owner := path.lstat().st_uid) not in (0, os.geteuid()):
        raise UsageError(f"{path} is a symbolic link that uid {owner} has made: name the folder that it leads to.")
    return RunDirectory(path)


def command_line(command: str, config_path: Path | None = None, logdir: Path | None = None) -> str:
    """How a person types a command for the same run."""
    program = ["trainerd"] if shutil.which("trainerd") else _program()
    parts = [*program, *command.split()]
    if config_path is not None:
        parts += ["--config", str(config_path)]
    if logdir is not None:
        parts += ["--logdir", str(logdir)]
    return shlex.join(parts)


def _program() -> list[str]:
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return [sys.executable, "-m", "trainerd"]
    return [str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)]
