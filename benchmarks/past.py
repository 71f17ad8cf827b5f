"""What keeping and walking a history costs: minima, listing, evaluating, going_back."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, alone, best_compared, compared, median
from benchmarks.plan import Plan
from benchmarks.processes import PATIENCE, ROOT, BenchmarkError
from benchmarks.rates import UNIT, folder_of, rates_of
from benchmarks.sides import Trainer, start, wait_for_first_step, write_config
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.manifest import FileRecord, Manifest
from trainerd.config.fingerprint import of_config
from trainerd.config.parse import parse
from trainerd.rundir.paths import RunDirectory

DIGITS = "trainerd.examples.digits:job"
OFF = "[checkpoint]\nminima = false\n"
SAVES = "[checkpoint]\nsave_model_steps = {every}\nkeep_last = 1000\n[evaluate]\nevaluate_secs = 0\n"


def minima(plan: Plan) -> list[Figure]:
    """Steps per second with minima, the default, and without."""
    return [_minima(plan, "tiny", "benchmarks.jobs:tiny", 0.95), _minima(plan, "digits", DIGITS, 0.98)]


def _minima(plan: Plan, name: str, entry: str, bar: float) -> Figure:
    with folder_of() as folder, folder_of() as another:
        on, off = rates_of(plan, lambda: Trainer(entry, folder), lambda: Trainer(entry, another, more=OFF), long=True)
    return compared("minima", f"{name} step, minima kept / not", UNIT, on, off, Bar(AT_LEAST, bar))


def listing(plan: Plan) -> list[Figure]:
    """`trainerd checkpoints` of many checkpoints."""
    with folder_of() as folder:
        rundir = RunDirectory(folder)
        names = ("model.ckpt-0.index", "model.ckpt-0.data-00000-of-00001")
        files = {name: FileRecord(1000, "0" * 32) for name in names}
        made_with = of_config(parse({"entry": "job:job", "logdir": "run"}))
        for step in range(plan.manifests):
            metrics = {"loss": 1 / (step + 1), "accuracy": 0.5}
            made = Manifest("schedule", metrics, 0.0, made_with, step=step, at=1e9 + step, files=files)
            rundir.manifest(step).write_bytes(made.to_bytes())
        rundir.checkpoint_state.write_bytes(StateFile(plan.manifests - 1, ()).to_bytes(rundir.basename))
        times = [_command("checkpoints", "--logdir", str(folder)) for _ in range(3)]
    what = f"trainerd checkpoints of {plan.manifests:,}"
    return [alone("listing", what, "s", median(times), times, Bar(AT_MOST, 1.0))]


def evaluating(plan: Plan) -> list[Figure]:
    """`trainerd evaluate --all`, beside a script that restores in a loop."""
    ours, by_hand = [], []
    with folder_of() as folder:
        config = write_config(folder, DIGITS, f"max_steps = {10 * plan.evaluated}\n" + SAVES.format(every=10))
        _command("run", "--config", str(config))
        for number in range(plan.evaluations):
            plan.say(f"round {number + 1} of {plan.evaluations}")
            by_hand.append(seconds_of(["-m", "benchmarks.peers.evaluate", str(folder / "run")]))
            ours.append(_command("evaluate", "--all", "--again", "--config", str(config)))
    what = f"evaluate {plan.evaluated} checkpoints / a script"
    return [best_compared("evaluating", what, "s", ours, by_hand, Bar(AT_MOST, 1.2))]


def going_back(plan: Plan) -> list[Figure]:
    """`trainerd rollback` of a run that trains, beside a pause, an edit of `checkpoint`, and a start."""
    ours, by_hand = [], []
    with folder_of() as folder:
        config = write_config(folder, DIGITS, SAVES.format(every=100))
        rundir = RunDirectory(folder / "run")
        for number in range(plan.starts):
            plan.say(f"round {number + 1} of {plan.starts}")
            with start(config) as trainer:
                wait_for_first_step(trainer)
                _until_step(rundir, 300)
                ours.append(_command("rollback", "100", "--config", str(config)))
                _until_step(rundir, 300)
                begun = time.perf_counter()
                trainer.pause()
            rundir.checkpoint_state.write_bytes(StateFile(100, tuple(sorted(rundir.steps()))).to_bytes(rundir.basename))
            with start(config) as again:
                wait_for_first_step(again)
                by_hand.append(time.perf_counter() - begun)
                again.pause()
    what = "rollback to the first step there / a restart by hand"
    return [best_compared("going_back", what, "s", ours, by_hand, Bar(AT_MOST, 0.5))]


def _until_step(rundir: RunDirectory, step: int) -> None:
    end = time.monotonic() + PATIENCE
    while not [each for each in rundir.steps() if each >= step]:
        if time.monotonic() > end:
            raise BenchmarkError(f"no checkpoint of step {step} in {rundir.path}")
        time.sleep(0.02)


def _command(*arguments: str) -> float:
    """The wall time of a `trainerd` command."""
    return seconds_of(["-m", "trainerd", *arguments])


def seconds_of(arguments: list[str]) -> float:
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise BenchmarkError(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return time.perf_counter() - begun
