"""Several devices of one machine, on logical devices: training, resuming, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Fork
from trainerd.checkpoints import manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state
from trainerd.system.gpus import DeviceState

JOBS = Path(__file__).with_name("several_devices.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the jobs of several devices."""
    shutil.copy(JOBS, tmp_path)
    return tmp_path


def config(folder: Path, entry: str, devices: int | str, more: str = "") -> None:
    """Write the config of a job."""
    text = f'entry = "several_devices:{entry}"\nlogdir = "run"\ndevices = {devices}\n{more}'
    (folder / "trainerd.toml").write_text(text, encoding="utf-8")


def compared(fork: Fork, folder: Path, devices: int) -> dict[str, Any]:
    """Return what the program prints that compares the numbers of so many devices with those of one."""
    program = fork(folder, program="several_devices.py", arguments=[str(devices)])
    assert program.end(120) == 0, program.text
    found: dict[str, Any] = json.loads(program.text.strip().splitlines()[-1])
    assert np.allclose(found["alone"], found["near"], rtol=1e-4, atol=1e-6)
    return found


def test_fit_gives_the_numbers_of_keras_and_those_of_one_device(fork: Fork, folder: Path) -> None:
    two = compared(fork, folder, 2)
    divided, kerass, undivided, kerass_undivided = two["same"]
    assert divided == kerass and undivided == kerass_undivided
    in_parts, whole = two["functions"]
    assert in_parts == whole
    assert two["unbuilt"] == two["near"]
    weights = 3 * 2 * 1000 * 10 * 4  # of which the snapshot has one device's
    share, copy = two["memory"]["share"], two["memory"]["copy"]
    assert share == {"before": 6, "after": 9, "bytes": 1.5 * weights, "moved": 3}  # a step takes new ones
    assert copy == {"before": 9, "after": 9, "bytes": 1.5 * weights, "moved": 0}
    reasons = two["reasons"]
    assert "97 examples in batches of 8 has 1 example" in reasons["an example"]
    assert "in the scope of a strategy" in reasons["in the scope"] == reasons["supervised in the scope"]
    assert "OneDeviceStrategy" in reasons["another kind"]
    assert "DistributedDataset" in reasons["distributed"]
    assert "`devices` has no effect here" in reasons["settings"]
    assert "without run_eagerly=True" in reasons["eager"]


@pytest.mark.long
def test_four_devices_give_the_numbers_of_one(fork: Fork, folder: Path) -> None:
    compared(fork, folder, 4)


@pytest.mark.long
def test_a_run_of_functions_that_is_interrupted_is_the_same_bit_for_bit(fork: Fork, folder: Path) -> None:
    """test_gpu_check.py proves a KerasJob of several devices."""
    config(folder, "functions", 2)
    prove = fork(folder, run=["prove", "--steps", "30", "--interruptions", "1"])
    assert prove.end(200) == 0 and prove.text.rstrip().endswith("The same, bit for bit."), prove.text


def test_a_device_that_is_lost_ends_the_run_and_the_next_start_resumes(fork: Fork, folder: Path) -> None:
    config(folder, "lost", 2, "max_steps = 30\n[checkpoint]\nsave_model_steps = 10\n")
    first = fork(folder, run=["run"])
    assert first.end(120) == 70 and "the job failed in step 20" in first.text, first.text
    second = fork(folder, run=["run"])
    assert second.end(120) == 0 and "restored step 10" in second.text, second.text
    assert f"weight {sum(range(1, 31))}" in second.text, second.text


def test_a_run_continues_with_more_devices_and_is_released_for_one(fork: Fork, folder: Path) -> None:
    config(folder, "job", 2)
    first = fork(folder, run=["run", "--max-steps", "20"])
    assert first.end(120) == 0, first.text
    state = read_state(RunDirectory(folder / "run").state)
    assert state is not None and state.devices == [DeviceState("CPU:0"), DeviceState("CPU:1")]
    fingerprint = manifest.read(RunDirectory(folder / "run").manifest(20)).fingerprint
    assert re.fullmatch(r"2, each with \d+ values of its own", fingerprint["job.devices"])
    config(folder, "job", '"all"')
    second = fork(folder, run=["run", "--max-steps", "40"])
    assert second.end(120) == 0 and "restored step 20" in second.text, second.text
    assert max(RunDirectory(folder / "run").steps()) == 40
    export = fork(folder, run=["export", "released", "--format", "keras"])
    assert export.end(120) == 0 and "keras: loaded again, and compared" in export.text, export.text


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ("5", "devices = 5, and this process can use 4: CPU:0, CPU:1, CPU:2, CPU:3."),
        ('["CPU:0", "CPU:0"]', "devices: 'CPU:0' is listed twice."),
        ('["CPU:0", "GPU:7"]', "devices: 'GPU:7' does not exist. This process can use CPU:0"),
    ],
)
def test_devices_that_are_not_there_are_named(fork: Fork, folder: Path, devices: str, reason: str) -> None:
    config(folder, "job", devices)
    run = fork(folder, run=["run"])
    assert run.end(120) == 69 and reason in run.text and "Traceback" not in run.text, run.text


def test_graphs_and_estimators_are_refused(fork: Fork, folder: Path) -> None:
    config(folder, "graph", 2)
    run = fork(folder, run=["run"])
    assert run.end(120) == 69 and "graphs of TensorFlow 1, Estimators and Experiments train on one device" in run.text
    assert "Traceback" not in run.text, run.text


WATCHED = """
import os
import sys

import tensorflow as tf

seen, exists = [], os.path.exists
os.path.exists = lambda path: path == "/dev/nvidiactl" or exists(path)
for name in ("list_physical_devices", "list_logical_devices", "get_visible_devices"):
    setattr(tf.config, name, lambda kind=None, call=getattr(tf.config, name): seen.append(kind) or call(kind))
tf.config.seen = seen

from trainerd.cli import main

main(sys.argv[1:])
"""

CHOOSES = """
import tensorflow as tf

assert not tf.config.seen, "trainerd has asked for devices, so CUDA_VISIBLE_DEVICES may have been read"
from several_devices import *  # configures the devices
"""


@pytest.mark.parametrize("command", [["run", "--max-steps", "3"], pytest.param(["check"], marks=pytest.mark.long)])
def test_a_job_chooses_its_gpus_first(fork: Fork, folder: Path, command: list[str]) -> None:
    """As on a machine with a GPU: TensorFlow reads CUDA_VISIBLE_DEVICES when it is first asked for devices."""
    config(folder, "job", '"all"', "seed = 1\ndeterministic = true\n")
    (folder / "trainerd.toml").write_text((folder / "trainerd.toml").read_text().replace("several_devices", "chooses"))
    (folder / "watched.py").write_text(WATCHED)
    (folder / "chooses.py").write_text(CHOOSES)
    run = fork(folder, program="watched.py", arguments=command)
    assert run.end(120) == 0, run.text
    if command[0] == "run":
        state = read_state(RunDirectory(folder / "run").state)
        assert state is not None and len(state.devices) == 4
