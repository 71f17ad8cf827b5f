"""The options that commands share, and the config or run directory that they choose."""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click
import tomlkit
from click.shell_completion import CompletionItem

from trainerd.checkpoints import checkpoint_state
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath, Whole
from trainerd.config import edit
from trainerd.config import parse as configs
from trainerd.config.bare_script import is_script, keys_of
from trainerd.config.schema import Config, ScriptConfig
from trainerd.errors import ConfigError, NotRunningError, StorageError, UsageError
from trainerd.history.curves import event_files
from trainerd.rundir import names, registry
from trainerd.rundir.lock import find_removed, read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.registry import RegisteredRun, StartOptions
from trainerd.rundir.runs import all_paths, identities
from trainerd.rundir.state import LARGEST, read_state
from trainerd.system.absolute import absolute
from trainerd.text import is_plain_word
from trainerd.workers.plan import make_plan

Command = Callable[..., Any]


class _Run(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A run: its run directory, or a name that `trainerd list` shows."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Find the run. A value with a slash is a path. Another is a name, unless such a run directory is here.

        Raises:
          NotRunningError: an option or an argument names neither a run nor a directory.
        """
        if not str(value):
            self.fail("expected a run or a path, got ''.", param, ctx)
        path = Path(value)
        if is_script(path) and os.path.isfile(path):  # noqa: PTH113  no error where it may not be read
            if ctx is not None:
                ctx.meta[_CONFIG] = path
            return configs.load_rundir(path)
        if os.path.isfile(path):  # noqa: PTH113
            self.fail(f"expected a directory, got the file {str(value)!r}.", param, ctx)
        is_argument = param is not None and param.name == "run"
        is_there = os.path.lexists(path)
        runs = [] if os.sep in str(value) else identities(all_paths())
        if runs and not (is_there and _is_run(path, with_config=is_argument)):
            found = names.find(str(value), runs)
            if found is not None:
                if is_there and not _is_same(found, path):
                    _say_of(ctx, f"{value} is the run in {found}. The folder ./{value} is not a run directory.")
                return found
        if is_there:
            called = (run.path for run in runs if names.is_called(run, str(value)))
            others = [each for each in called if not _is_same(each, path)]
            if others:
                _say_of(ctx, f"{value} is the run directory here, ./{value}, and not the run in {others[0]}.")
            return _of_job(path, ctx) if is_argument else path
        # It may be something else than a run, one that is to begin, or one whose directory was removed while it trains.
        is_to_begin = ctx is not None and ctx.info_name in _BEFORE_START and not is_argument
        is_tab = ctx is not None and ctx.resilient_parsing  # which offers nothing of another run
        if param is None or is_to_begin or is_tab or find_removed(RunDirectory(absolute(path))) is not None:
            return path
        near = difflib.get_close_matches(str(value), names.names(runs).values(), n=1)
        hint = f"Did you mean {near[0]}?" if near else "`trainerd list` shows your runs."
        kind = "run directory" if os.sep in str(value) else "run"
        raise NotRunningError(f"the {kind} {value} does not exist. {hint}")

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names of the runs, and folders."""
        found = names.names(identities(all_paths())).values()
        named = [CompletionItem(name) for name in sorted(found) if is_plain_word(name) and name.startswith(incomplete)]
        return named or [CompletionItem(incomplete, type="dir")]


def _is_run(folder: Path, *, with_config: bool) -> bool:
    """Return whether a folder is a run directory or, `with_config`, has a config that names one."""
    rundir = RunDirectory(folder.absolute())
    signs = [rundir.lock, rundir.state, rundir.checkpoint_state, *[folder / configs.NAME] * with_config]
    return any(map(os.path.lexists, signs)) or bool(event_files(rundir))


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _say_of(ctx: click.Context | None, text: str) -> None:
    """Say something about what a command acts on, unless a shell asks for completions."""
    if ctx is None or not ctx.resilient_parsing:
        say(text, err=True)


def _of_job(folder: Path, ctx: click.Context | None) -> Path:
    """Return the run directory that a folder means: that of the config in it, if nothing was trained in the folder
    itself."""
    config = folder / configs.NAME
    if not os.path.isfile(config) or os.path.lexists(RunDirectory(folder.absolute()).lock):  # noqa: PTH113
        return folder
    if ctx is not None:
        ctx.meta[_CONFIG] = config
    return configs.load_rundir(config)


RUN = _Run()
_BEFORE_START = ("doctor", "tensorboard")  # what they do is of use before a run's first start
_TAKE_SCRIPT = ("run", "start", "check", "prove")
_CONFIG, _IS_EXAMPLE_SAID = "trainerd.config", "trainerd.is_example_said"
_TYPED = sys.argv[0]  # a script that trainerd runs sees its own
_DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits.toml"

config_option = click.option(
    "-c",
    "--config",
    "config_path",
    type=GivenPath(path_type=Path),
    help="The config file, or a script without one. Default: ./trainerd.toml.",
)
_logdir_option = click.option(
    "--logdir",
    type=RUN,
    help="The run: a run directory, or a name that `trainerd list` shows.",
)
_new_logdir_option = click.option(
    "--logdir",
    type=GivenPath(path_type=Path, file_okay=False),
    metavar="PATH",
    help="The run directory, in place of the config's.",
)
max_steps_option = click.option(
    "--max-steps",
    type=Whole(1, LARGEST),
    help="Train until this step, in place of the config's `max_steps` and `target`.",
)
forever_option = click.option("--forever", is_flag=True, help="Train past `max_steps` and `target`, until a pause.")
accept_changes_option = click.option(
    "--accept-changes",
    is_flag=True,
    help="Resume although the dataset, the optimizer or the order of the layers has changed. Load a job whose epochs "
    "are done.",
)
accept_job_option = click.option(
    "--accept-job",
    is_flag=True,
    help="Resume although the newest checkpoint is of another job, or the job was renamed.",
)
adopt_option = click.option("--adopt", is_flag=True, help="Replace the script's `model.fit` by `trainerd.keras.fit`.")
set_option = click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="A key of the config, for this start; repeatable."
)
rank_option = click.option(
    "--rank", type=Whole(min=0), help="Which worker of the cluster this is. Default: TRAINERD_RANK."
)


@dataclass(frozen=True)
class RunOptions:
    """The options of the command line that name a run, and those with which it trains.

    Attributes:
      config_path: the config; None for the default.
      logdir: the run directory, in place of the config's.
      max_steps, forever: when training ends, in place of the config's `max_steps` and `target`.
      accept_changes, accept_job: what may differ from the newest checkpoint.
      adopt, arguments: how a script is run, in place of the keys of the table [script].
      changes: other values of keys of the config, as typed.
    """

    config_path: Path | None = None
    logdir: Path | None = None
    max_steps: int | None = None
    forever: bool = False
    accept_changes: bool = False
    accept_job: bool = False
    adopt: bool = False
    arguments: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def typed(self) -> list[str]:
        """Return the options as a person types them."""
        script = [str(self.config_path)] if self.config_path is not None and is_script(self.config_path) else []
        config = None if script else self.config_path
        given = {"--config": config, "--logdir": self.logdir, "--max-steps": self.max_steps}
        found = [part for name, value in given.items() if value is not None for part in (name, str(value))]
        flags = {
            "--forever": self.forever,
            "--accept-changes": self.accept_changes,
            "--accept-job": self.accept_job,
        }
        found += [name for name, is_given in flags.items() if is_given]
        return [*found, *self.set_options(), *script, *self.of_script()]

    def set_options(self) -> list[str]:
        """Return the changes of the config, as a person types them."""
        return [part for each in self.changes for part in ("--set", each)]

    def of_script(self) -> list[str]:
        """Return the options of a script, as a person types them."""
        return [*["--adopt"] * self.adopt, *(["--", *self.arguments] if self.arguments else [])]

    def overrides(self) -> Callable[[Config], Config]:
        """Return what the options change in a config, as a function that a reload calls again.

        Raises:
          UsageError: the options contradict each other, or a change is not one.
        """
        changes = edit.read_changes(self.changes)
        if "logdir" in changes:
            raise UsageError("--set logdir: give --logdir, which names the run directory.")
        if self.forever and self.max_steps is not None:
            raise UsageError("--forever and --max-steps contradict each other. Give one.")
        # The path is made absolute now, since the daemon works in another folder.
        where = str(absolute(self.logdir)) if self.logdir is not None else None
        options = StartOptions(self.changes, self.max_steps, self.forever, self.adopt, self.arguments)

        def apply(config: Config) -> Config:
            config = edit.with_changes(config, changes)
            config = replace(config, accept_changes=self.accept_changes, accept_job=self.accept_job, options=options)
            if where is not None:
                config = replace(config, logdir=where)
            if self.of_script():
                config = _with_script(config, self)
            if self.max_steps is not None:
                config = replace(config, max_steps=self.max_steps, target=None)
            return replace(config, max_steps=None, target=None) if self.forever else config

        return apply


def of_a_run(command: Command) -> Command:
    """Give a command the options of a run, as its first argument: one `RunOptions`."""
    names = [each.name for each in fields(RunOptions) if each.name not in ("adopt", "arguments")]

    @functools.wraps(command)
    def call(**given: Any) -> Any:
        return command(RunOptions(**{name: given.pop(name) for name in names}), **given)

    options = (set_option, accept_job_option, accept_changes_option, forever_option, max_steps_option)
    for option in (*options, _new_logdir_option, config_option):
        call = option(call)
    return call


def of_training(command: Command) -> Command:
    """Give a command the options of a run, and those of training in this process; a script may be named."""

    @functools.wraps(command)
    def call(run: RunOptions, script: Path | None, **given: Any) -> Any:
        return command(replace(run, **_of_script(script, run.config_path, given)), **given)

    return _script_arguments(rank_option(of_a_run(call)))


def of_queue(command: Command) -> Command:
    """Give a command that names a run to train later the options of it, as its first argument: one `RunOptions`.

    Its argument may be a config too.
    """

    @functools.wraps(command)
    def call(
        config_path: Path | None,
        logdir: Path | None,
        max_steps: int | None,
        forever: bool,
        changes: tuple[str, ...],
        script: Path | None,
        **given: Any,
    ) -> Any:
        if script is not None and script.suffix == ".toml" and config_path is None:
            config_path, script = script, None
        named = RunOptions(logdir=logdir, max_steps=max_steps, forever=forever, changes=changes)
        return command(replace(named, **_of_script(script, config_path, given)), **given)

    return _script_arguments(config_option(_new_logdir_option(max_steps_option(forever_option(set_option(call))))))


def of_trial(command: Command) -> Command:
    """Give a command that tries a job the options that name it, as its first argument: one `RunOptions`."""

    @functools.wraps(command)
    def call(config_path: Path | None, script: Path | None, changes: tuple[str, ...], **given: Any) -> Any:
        return command(RunOptions(changes=changes, **_of_script(script, config_path, given)), **given)

    return _script_arguments(config_option(set_option(call)))


def _script_arguments(command: Command) -> Command:
    given = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)(adopt_option(command))
    return click.argument("script", type=GivenPath(path_type=Path), required=False)(given)


def _of_script(script: Path | None, config_path: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `RunOptions` that name a script, which are taken out of what a command was given.

    Raises:
      UsageError: it is not a script, or a config is given too.
    """
    found = {name: given.pop(name) for name in ("adopt", "arguments")} | {"config_path": config_path}
    if script is None:
        return found
    if not is_script(script):
        raise UsageError(f"expected a script, such as train.py, got {str(script)!r}. --config names a config.")
    if config_path is not None:
        raise UsageError(
            f"the script {script} and --config are both given. Give one; the config's `entry` names its script."
        )
    return found | {"config_path": script}


def _with_script(config: Config, run: RunOptions) -> Config:
    """Return a config with the options of a script.

    Raises:
      UsageError: its entry is not a script.
    """
    if not config.entry.endswith(".py"):
        raise UsageError(f"--adopt and the arguments after `--` are for a script, and entry = {config.entry!r}.")
    adopt, arguments = run.adopt or config.script.adopt, run.arguments or config.script.arguments
    return replace(config, script=ScriptConfig(adopt=adopt, arguments=arguments))


def of_one_run(command: Command) -> Command:
    """Give a command with arguments of its own the options that name a run; its class is `CommandOfRun`."""
    return _with_run(click.option("--run", type=RUN, hidden=True)(command))


def _with_run(command: Command) -> Command:
    """Give a command the options that name a run, as its argument `run`: one `RunOptions`."""

    @functools.wraps(command)
    def call(config_path: Path | None, logdir: Path | None, run: Path | None = None, **given: Any) -> Any:
        if logdir is not None and run is not None:
            raise UsageError("the run is given twice: as an argument and as --logdir. Give one.")
        return command(run=RunOptions(config_path, logdir or run), **given)

    return config_option(_logdir_option(call))


def of_one_argument(command: Command) -> Command:
    """Give a command these options, and an argument that may name the run instead."""
    return _with_run(click.argument("run", type=RUN, required=False)(command))


def load_config(config_path: Path | None, *, has_example: bool = True) -> Config:
    """Return the config of --config, of the current folder, or the digits job.

    Args:
      config_path: the option.
      has_example: whether the digits job is what a folder without a config has.

    Raises:
      ConfigError: it is wrong, or there is none.
    """
    path = _find_config(config_path)
    if path is None and (run := _script_of_folder()) is not None:
        path = run.config
    if path is None and not has_example:
        raise ConfigError(
            f"{Path.cwd()} has no {configs.NAME}. Name a config or a script, or write a config with "
            f"`{command_line('init .')}`."
        )
    return _example() if path is None else _as_started(configs.load(path))


def _as_started(config: Config) -> Config:
    """Return the config of a script that has none, with the options with which it was last started."""
    if config.path is None or not is_script(config.path):
        return config
    runs = [run for run in registry.known() if run.config == config.path and run.script is not None]
    if not runs:
        return config
    script = next((run for run in runs if run.path == config.rundir), runs[0]).script
    assert script is not None
    return replace(config, script=ScriptConfig(adopt=script.adopt, arguments=script.arguments))


def config_of_run(run: RunOptions) -> Config:
    """Return the config for a command that reads a run: that of --config, the one that the run was started with, or
    another.

    Raises:
      ConfigError: it is wrong.
    """
    config_path = run.config_path or config_of_start(run.logdir)
    is_example = config_path is None and run.logdir is not None and _is_of_digits(absolute(run.logdir))
    # An example has its job, whatever job is in this folder.
    config = run.overrides()(_example() if is_example else load_config(config_path))
    with contextlib.suppress(StorageError):
        state = read_state(RunDirectory(config.rundir).state)
        if state is not None and state.params:  # `--set` may have given them
            return replace(config, params=state.params)
    return config


def config_of_start(logdir: Path | None) -> Path | None:
    """Return the config in the folder that the argument names, or the one that the run was started with if it is still
    there."""
    if logdir is None:
        return None
    ctx = click.get_current_context(silent=True)
    if ctx is not None and _CONFIG in ctx.meta:
        return Path(ctx.meta[_CONFIG])
    found = (run.config for run in registry.known() if absolute(run.path) == absolute(logdir))
    return next((path for path in found if path is not None and path.exists()), None)


def _script_of_folder() -> RegisteredRun | None:
    """Return the run of the script that was started in the current folder without a config; None if there is none.

    A run that trains comes before others, and one that has trained before one that has not.

    Raises:
      UsageError: there are several.
    """
    here = Path.cwd()
    found = [run for run in registry.known() if run.script is not None and run.script.folder == here]
    found = [run for run in found if run.config is not None and run.config.exists()]
    trained = [run for run in found if RunDirectory(run.path).steps()]
    runs = [run for run in found if read_holder(RunDirectory(run.path)) is not None] or trained or found
    if len(runs) > 1:
        names = ", ".join(str(run.path) for run in runs)
        raise UsageError(f"several scripts were started in {here}. Name a run with --logdir: {names}.")
    return runs[0] if runs else None


def _is_of_digits(logdir: Path) -> bool:
    with contextlib.suppress(StorageError):
        state = read_state(RunDirectory(logdir).state)
        return state is not None and state.job == _digits().entry
    return False


def options_of_start(rundir: RunDirectory, job: str, run: RunOptions) -> RunOptions:
    """Return the options with which a start trains this job, and not the one that is in the current folder.

    Args:
      rundir: the run directory.
      job: the entry that is trained there; "" if that is not known.
      run: the options of the present command.
    """
    if run.config_path is not None or run.logdir is None:
        return run
    found = config_of_start(run.logdir)
    if found is None and Path(configs.NAME).exists() and job == _digits().entry:
        found = _DIGITS
    with contextlib.suppress(ConfigError):
        if found is not None and configs.load_rundir(found) == rundir.path:
            return RunOptions(found)
    return RunOptions(found, run.logdir)


def config_text(config_path: Path | None) -> str:
    """Return the text of the config that `load_config` reads."""
    path = _find_config(config_path) or _DIGITS
    return tomlkit.dumps(keys_of(path)) if is_script(path) else path.read_text(encoding="utf-8-sig")


def _find_config(config_path: Path | None) -> Path | None:
    """Return the config of --config, or of the current folder; None if the example is taken.

    Raises:
      ConfigError: there is none, and a job is here that the person may mean.
    """
    if config_path is not None:
        return config_path / configs.NAME if config_path.is_dir() else config_path
    if Path(configs.NAME).exists():
        return Path(configs.NAME)
    if Path(configs.JOB).exists():
        raise ConfigError(
            f"{Path.cwd()} has a {configs.JOB} and no {configs.NAME}. `{command_line('init .')}` writes a config for "
            "it; --config names a config that is elsewhere."
        )
    return None


def _example() -> Config:
    """Return the digits job. A person who forgot a config must see that it is this one."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or not ctx.meta.get(_IS_EXAMPLE_SAID):
        _say_of(
            ctx, f"There is no {configs.NAME} in {Path.cwd()}: this is the digits example that comes with trainerd."
        )
    if ctx is not None:
        ctx.meta[_IS_EXAMPLE_SAID] = True
    return _digits()


def _digits() -> Config:
    return configs.parse(tomllib.loads(_DIGITS.read_text(encoding="utf-8")), folder=Path.cwd())


def as_worker(apply: Callable[[Config], Config], rank: int | None) -> Callable[[Config], Config]:
    """Return a function that makes those changes and sets which worker this process is, for commands that train.

    Commands that only read a run need no worker.

    Args:
      apply: what `RunOptions.overrides` gave.
      rank: what the command line says.
    """

    def apply_as_worker(config: Config) -> Config:
        config = apply(config)
        plan = make_plan(config.cluster, os.environ, rank)
        if plan is None:
            return config
        return replace(config, rank=plan.rank, addresses=tuple(map(str, plan.workers)))

    return apply_as_worker


def find_rundir(run: RunOptions) -> RunDirectory:
    """Return the run directory of a command. Mistakes in the config since the start do not matter.

    Raises:
      ConfigError: the config cannot be read, or names none.
      UsageError: it is a link of another user's.
    """
    if run.logdir is not None:
        return _trusted(absolute(run.logdir))
    path = _find_config(run.config_path)
    if path is None and (found := _script_of_folder()) is not None:
        return _trusted(found.path)
    return _trusted(_example().rundir if path is None else configs.load_rundir(path))


def run_to_change(run: RunOptions) -> RunDirectory:
    """Return the run directory of a command that changes something there; see `find_rundir`. Says which one it is."""
    rundir = find_rundir(run)
    say(f"run: {rundir.path}", err=True)
    return rundir


def run_path(said: str) -> Path:
    """Return a folder, or that of the run of this name.

    Raises:
      UsageError: several runs have the name.
    """
    return RUN.convert(said, None, None)


def asked_rundir(rundir: RunDirectory) -> RunDirectory:
    """Return the run directory in which to ask the process that trains a run for something, on this machine.

    That is the run's own, unless this machine has only workers that are not the chief. Then it is that of one of them,
    which passes on what it is asked for.
    """
    if read_holder(rundir) is not None:
        return rundir
    return next((each for each in rundir.workers() if read_holder(each) is not None), rundir)


def _trusted(path: Path) -> RunDirectory:
    """Return a run directory. A link to one may be a trap of another user, who can write to the folder that the link is
    in."""
    if path.is_symlink() and (owner := path.lstat().st_uid) not in (0, os.geteuid()):
        raise UsageError(f"{path} is a symbolic link that uid {owner} has made: name the folder that it leads to.")
    return checkpoint_state.run_directory(path)


def command_line(
    command: str, config_path: Path | None = None, logdir: Path | None = None, options_of_start: Sequence[str] = ()
) -> str:
    """Return a command for the same run, as a person types it.

    Args:
      command: the command, with its other options.
      config_path, logdir: of the run, as given.
      options_of_start: `--set` and the options of a script, for a command that trains.
    """
    program = ["trainerd"] if shutil.which("trainerd") else _program()
    parts = [*program, *command.split()]
    if config_path is not None:
        takes_script = is_script(config_path) and parts[len(program)] in _TAKE_SCRIPT
        parts += [*([] if takes_script else ["--config"]), str(config_path)]
    if logdir is not None:
        parts += ["--logdir", str(logdir)]
    return shlex.join([*parts, *options_of_start])


def _program() -> list[str]:
    program = Path(_TYPED)
    if program.name == "__main__.py":
        return [sys.executable, "-m", "trainerd"]
    return [str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)]
