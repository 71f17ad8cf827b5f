"""The command that a person types to start a run again."""

from __future__ import annotations

from trainerd.cli import options
from trainerd.cli.options import RunOptions
from trainerd.errors import NotRunningError
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
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
        return f"The {run_job.start_of(job)}"  # its arguments and its folder are not recorded
    start = options.options_of_start(rundir, job, run)
    return f"`{options.command_line(command, start.config_path, start.logdir)}`"


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
