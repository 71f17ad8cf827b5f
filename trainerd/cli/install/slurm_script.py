"""The batch script with which Slurm trains a run: it starts all workers again if one was lost, and is queued again."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from trainerd.errors import PeerLostError, UsageError
from trainerd.system.durable_files import storage, write_atomic

NAME = "trainerd.sbatch"

_SCRIPT = """\
#!/bin/bash
# Trains {config} as a job of Slurm, a worker in each task:
#   sbatch --nodes=2 --ntasks-per-node=1 {name}
# See docs/many-machines.md. Options of sbatch overrule those here.
#SBATCH --job-name={job}
#SBATCH --output={job}-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
# Before the time is over the workers get SIGTERM: they save and end. Then the job is queued again.
#SBATCH --signal=TERM@{margin}

again() {{  # Slurm ended the job, and the run is not over
    scontrol show job "$SLURM_JOB_ID" > "$seen" || return 1
    grep -q 'PreemptTime=[0-9]' "$seen" && return
    end=$(grep -o ' EndTime=[^ ]*' "$seen" | cut -d= -f2)
    [ $(($(date -d "$end" +%s) - $(date +%s))) -lt {early} ]
}}

seen=$(mktemp)
trap 'rm -f "$seen"' EXIT
while :; do
    srun --kill-on-bad-exit=1 --wait=30 {command}
    code=$?
    if [ $code -eq 0 ]; then
        grep -q '"phase": "paused"' {state} && again && scontrol requeue "$SLURM_JOB_ID"
        exit 0
    fi
    # 76: another worker is gone. From 128 on: a signal. All resume from the newest checkpoint.
    [ $code -eq {lost} ] || [ $code -ge 128 ] || exit $code
    sleep 1
done
"""
MARGIN_SECS = 120  # before the end of the job's time
_EARLY_SECS = 300  # Slurm may send that signal a minute too soon


def script(config: Path, state: Path) -> str:
    """Return the script for a config.

    Args:
      config: the config's file, absolute.
      state: the run's state.json.
    """
    command = shlex.join([sys.executable, "-m", "trainerd", "run", "--config", str(config)])
    return _SCRIPT.format(
        config=config,
        name=NAME,
        job=config.parent.name.replace(" ", "-") or "trainerd",
        margin=MARGIN_SECS,
        early=_EARLY_SECS,
        command=command,
        state=shlex.quote(str(state)),
        lost=PeerLostError.exit_code,
    )


def write(config: Path, rundir: Path) -> Path:
    """Write the script beside a config. Returns its path.

    Raises:
      UsageError: another one is there.
      StorageError: it cannot be written.
    """
    path, text = config.parent / NAME, script(config, rundir / "state.json")
    with storage(f"write {path}"):
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise UsageError(f"{path} exists and has other content. Move it, and try again.")
        write_atomic(path, text.encode())
    return path
