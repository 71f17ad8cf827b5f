"""The command that a person types to start a run again."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from trainerd.cli import options
from trainerd.cli.options import RunOptions
from trainerd.config.bare_script import keys_of
from trainerd.errors import ConfigError, NotRunningError
from trainerd.rundir import registry
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.registry import RegisteredRun
from trainerd.system import safe_paths
from trainerd.system.absolute import absolute
from trainerd.system.durable_files import storage


def how_to_start(rundir: RunDirectory, run: RunOptions, command: str = "start") -> str:
    """Return the command or program that starts a run, as the subject of a sentence. It trains the run's own job.

    Args:
      rundir: the run directory.
      run: the options of the command that says it.
      command: the command that starts a run with a config.

    Raises:
      NotRunningError: the option names a folder that is not a run directory, so nothing is to be started there.
    """
    from trainerd.history import run_job  # `status` seldom needs it, and is quick

    if run.logdir is not None:
        require_run(rundir)
    job = run_job.job_of(rundir)
    if job and run_job.is_program(job):
        known = _registered(rundir)
        if known is None:
            return f"The {run_job.start_of(job)}"  # its arguments and its folder are not recorded
        if known.script is not None:
            return f"`{_line_of(known, command, known.path)}`"
    start = options.options_of_start(rundir, job, run)
    return f"`{options.command_line(command, start.config_path, start.logdir)}`"


def how_to_train_fork(rundir: RunDirectory, folder: Path) -> str | None:
    """Return how a fork of the run of a script is trained, as the subject of a sentence; None if that is not recorded.

    Args:
      rundir: the run directory of the original run.
      folder: that of the fork.
    """
    if (known := _registered(rundir)) is None or known.config is None:
        return None
    if known.script is not None:
        line, is_adopted = _line_of(known, "run", folder), known.script.adopt
    else:
        line, is_adopted = options.command_line("run", known.config, folder), False
        with contextlib.suppress(ConfigError):  # a start reports it
            is_adopted = options.load_config(known.config).script.adopt
    return f"`{line}`" if is_adopted else f"When the script has `logdir` = {folder}, `{line}`"


def _registered(rundir: RunDirectory) -> RegisteredRun | None:
    """Return what is recorded of the last start of a run, if its script or its config is still there."""
    known = (each for each in registry.known() if absolute(each.path) == absolute(rundir.path))
    return next((each for each in known if each.config is not None and each.config.exists()), None)


def _line_of(known: RegisteredRun, command: str, logdir: Path) -> str:
    """Return the line that starts a script that has no config as it was started last.

    Args:
      known: what is recorded of it.
      command: the command that starts it.
      logdir: the run directory.
    """
    script, path = known.script, known.config
    assert script is not None and path is not None
    is_its_own = absolute(logdir) == absolute(script.folder / keys_of(path)["logdir"])
    path = path.relative_to(script.folder) if path.is_relative_to(script.folder) else path
    of_script = RunOptions(adopt=script.adopt, arguments=script.arguments).of_script()
    line = options.command_line(command, path, None if is_its_own else logdir, of_script)
    return line if script.folder == Path.cwd() else f"cd {shlex.quote(str(script.folder))} && {line}"


def require_run(rundir: RunDirectory) -> None:
    """Require that a folder that an option names is a run directory.

    Raises:
      NotRunningError: it is none, or does not exist.
    """
    with storage(f"read {rundir.path}"):
        if not rundir.path.exists():
            raise NotRunningError(f"the run directory {rundir.path} does not exist. `trainerd list` shows your runs.")
        is_there = any(map(safe_paths.exists, (rundir.state, rundir.lock, rundir.log, rundir.checkpoint_state)))
    if not is_there and not rundir.steps():
        raise NotRunningError(f"{rundir.path} is not a run directory. `trainerd list` shows your runs.")
