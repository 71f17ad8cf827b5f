"""A real Slurm on this machine: submit, save, a killed task, preemption, cancel. As docs/many-machines.md has it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.cluster.conftest import project
from tests.process.trainers import saved
from tests.unit.test_workers_gathering import free_port
from tests.waiting import wait_for
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state

__all__ = ["project"]

TOOLS = ("slurmctld", "slurmd", "sbatch", "scontrol", "munged")
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
MpiDefault=none
ReturnToService=2
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=4000
PartitionName=low Nodes=n1,n2 Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=high Nodes=n1,n2 PriorityTier=10 PreemptMode=OFF
"""


@dataclass
class Slurm:
    """A controller and two nodes."""

    folder: Path

    def call(self, *command: str, cwd: Path | None = None) -> str:
        """Call one of its commands. What it says."""
        environment = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def job(self, number: str, field: str) -> str:
        """A field of a job."""
        found = re.search(rf"\b{field}=(\S+)", self.call("scontrol", "show", "job", number))
        return found[1] if found else ""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    """Slurm, with munge, as root."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if (missing or os.geteuid() != 0) and not os.environ.get("CI"):
        pytest.skip("needs root, and the packages slurmctld, slurmd, slurm-client and munge")
    assert not missing, f"install the packages of {missing}"
    folder = tmp_path / "slurm"
    (folder / "state").mkdir(parents=True)
    for each in (folder, *folder.parents):
        if each.is_relative_to("/tmp"):
            each.chmod(each.stat().st_mode | 0o711)  # munge looks at who may write above its socket
    host = socket.gethostname().partition(".")[0]
    ports = {"port": free_port(), "first": free_port(), "second": free_port()}
    (folder / "slurm.conf").write_text(CONF.format(host=host, folder=folder, **ports))
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder}/munge.{name}" for option, name in files.items()]
    made = Slurm(folder)
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.run(["munged", "--force", *options], check=True, env=environment)
    started = [["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"]]
    running = [
        subprocess.Popen(each, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for each in started
    ]
    try:
        wait_for(lambda: _idle(made), lambda: (folder / "slurmctld.log").read_text())
        yield made
    finally:
        for process in reversed(running):
            children = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            process.wait(30)
            for child in children:
                if child.is_running():
                    child.kill()
        os.kill(int((folder / "munge.pid").read_text()), signal.SIGTERM)


def _idle(slurm: Slurm) -> bool:
    try:
        return slurm.call("sinfo", "--noheader", "-p", "low", "-o", "%t %D").split() == ["idle", "2"]
    except AssertionError:  # it does not answer yet
        return False


def test_a_job_is_saved_recovers_is_preempted_and_cancelled(slurm: Slurm, project: Path) -> None:
    (project / "trainerd.toml").write_text(
        'entry = "jobs:shared"\nlogdir = "run"\n[checkpoint]\nsave_model_steps = 200\nkeep_last = 3\n'
        f'[cluster]\nworkers = "slurm"\nport = {free_port()}\nheartbeat_secs = 5\n'
    )
    trainerd = [sys.executable, "-m", "trainerd"]
    slurm.call(*trainerd, "install", "--slurm", cwd=project)
    number = slurm.call("sbatch", "--parsable", "-N2", "--ntasks-per-node=1", "trainerd.sbatch", cwd=project).strip()
    rundir = RunDirectory(project / "run")

    def said() -> str:
        return "\n".join(path.read_text(errors="replace") for path in project.glob("*.out"))

    def training(besides: int = 0) -> State:
        def look() -> State | None:
            state = read_state(rundir.state)
            return state if state is not None and state.phase is Phase.TRAINING and state.pid != besides else None

        return wait_for(look, said)

    first = training()
    slurm.call("scancel", "--signal=USR1", number)
    wait_for(lambda: "(request)" in said(), said)

    worker = read_state(rundir.worker(1).state)
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    second = training(besides=first.pid)
    assert slurm.job(number, "Restarts") == "0", "the script starts the workers again"

    (project / "other.sh").write_text("#!/bin/bash\nsleep 1\n")
    slurm.call("sbatch", "--partition=high", "--exclusive", "-N2", "other.sh", cwd=project)
    wait_for(lambda: slurm.job(number, "Restarts") == "1", said)
    state = read_state(rundir.state)
    assert state is not None and state.phase is Phase.PAUSED and state.last_checkpoint is not None
    assert state.last_checkpoint.step == state.step, "it was told to save before it had to go"
    paused = state.step
    wait_for(lambda: _is_at_once(slurm, number), said)
    third = training(besides=second.pid)
    assert third.pid != second.pid
    assert f"restored step {paused}" in said()

    slurm.call("scancel", number)
    wait_for(lambda: slurm.job(number, "JobState") == "CANCELLED", said)
    state = wait_for(lambda: _over(rundir), said)
    assert saved(rundir)[0] == state.step > paused
    assert slurm.job(number, "Restarts") == "1", "a job that was cancelled stays cancelled"


def _is_at_once(slurm: Slurm, number: str) -> bool:
    """Have Slurm not wait for two minutes with a job that is queued again."""
    if slurm.job(number, "JobState") == "PENDING":
        with contextlib.suppress(AssertionError):  # it has begun meanwhile
            slurm.call("scontrol", "update", f"jobid={number}", "starttime=now")
    return slurm.job(number, "JobState") == "RUNNING"


def _over(rundir: RunDirectory) -> State | None:
    state = read_state(rundir.state)
    return state if state is not None and state.phase is Phase.PAUSED else None
