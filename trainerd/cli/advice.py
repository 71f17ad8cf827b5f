"""What a person types to start a run again."""

from __future__ import annotations

import shlex
from pathlib import Path

from trainerd.cli import options
from trainerd.rundir.paths import RunDirectory


def how_to_start(rundir: RunDirectory, config_path: Path | None, logdir: Path | None, command: str = "start") -> str:
    """What starts a run, as the subject of a sentence: a command that trains its own job, and no other.

    Args:
      rundir: the run directory.
      config_path, logdir: the options of the command that says it.
      command: the command that starts a run with a config.
    """
    from trainerd.history import run_job  # `status` seldom needs it, and is quick

    job = run_job.job_of(rundir)
    if job and run_job.is_program(job):
        return f"`{shlex.join(['python', job])}`" if job.endswith(".py") else f"Its own program, {job},"
    return f"`{options.command_line(command, *options.config_and_logdir(rundir, job, config_path, logdir))}`"
