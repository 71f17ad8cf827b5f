"""The story of docs/history.md from its beginning to its end, with a network whose loss has a real valley."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.process.conftest import Start, write_config
from trainerd.checkpoints import manifest
from trainerd.history.curves import read_curve
from trainerd.history.lines import lines
from trainerd.loop.minima.valleys import WARM_UP, Valleys
from trainerd.rundir.paths import RunDirectory

SMOOTHING = 100
# Boundaries by steps: how close one comes to the floor of the valley must not depend on how busy the machine is.
CONFIG = f"""
max_steps = 2200
[checkpoint]
save_model_steps = 50
keep_last = 50
minima_smoothing_steps = {SMOOTHING}
minima_overhead = 0.5
[evaluate]
evaluate_secs = 0
[summary]
save_summaries_secs = 0
metrics_steps = 1
"""
# Reads a release as somebody does who has TensorFlow and Keras alone, and the digits.
OUTSIDE = """
import json, sys
import keras, numpy as np, tensorflow as tf
table = np.loadtxt(sys.argv[2], delimiter=",", dtype=np.float32)[-360:]
x, y = table[:, :-1].reshape(-1, 8, 8, 1) / 16.0, table[:, -1].astype(int)
model = keras.models.load_model(sys.argv[1] + "/model.keras")
loaded = tf.saved_model.load(sys.argv[1] + "/savedmodel")
served = loaded.serve(x).numpy()
right = [float((logits.argmax(axis=1) == y).mean()) for logits in (model.predict(x, verbose=0), served)]
print(json.dumps({"right": right, "trainerd": "trainerd" in sys.modules}))
"""


def smoothed_at_each_step(rundir: RunDirectory) -> dict[int, float]:
    curve, valleys, found = read_curve(rundir, "loss"), Valleys(), {}
    assert curve.steps == list(range(1, 2201)), "every step is recorded"
    for step, loss in zip(curve.steps, curve.values, strict=True):
        valleys = valleys.seen(np.array([loss]), SMOOTHING)
        if valleys.count >= WARM_UP * SMOOTHING:
            found[step] = valleys.average
    return found


@pytest.mark.long
def test_a_minimum_is_kept_gone_back_to_forked_evaluated_and_released(start: Start, project: Path) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        command = start(*arguments)
        assert command.end() == code, command.text
        return command.text

    write_config(project, entry="jobs:valley", more=CONFIG)
    assert "the loss has turned up: its minimum was" in run("run")
    rundir = RunDirectory(project / "run")
    shown: list[dict[str, Any]] = json.loads(run("checkpoints", "--json"))
    [kept] = [entry for entry in shown if "minimum" in entry["marks"]]
    smoothed = smoothed_at_each_step(rundir)
    floor = min(smoothed.values())
    assert smoothed[kept["step"]] <= 1.25 * floor, f"the true floor is {floor}"
    assert kept["minimum"] == pytest.approx(smoothed[kept["step"]], rel=1e-3)  # summed in another order
    print(f"kept step {kept['step']}: {kept['minimum']:.4f}; the floor of the valley: {floor:.4f}")
    looked_at = manifest.read(rundir.manifest(kept["step"])).valleys
    assert looked_at["lowest_step"] == kept["step"] and looked_at["lowest"] == kept["minimum"]

    assert f"went back to step {kept['step']}." in run("rollback", "minimum")
    assert [line.began_at for line in lines(rundir)] == [kept["step"]]
    run("run", "--max-steps", str(kept["step"] + 100))
    run("fork", str(kept["step"]), "other", "--set", f"max_steps={kept['step'] + 100}")
    run("run", "--config", "other.toml")
    compared = run("diff", "run", "other")
    assert "differ" not in compared and compared.count("equal") >= 2

    run("evaluate", "--all")
    run("export", "--best", "max val_accuracy", "out")
    about = json.loads((project / "out" / "release.json").read_text())
    table = Path(sys.modules["trainerd"].__file__ or "").parent / "examples" / "digits.csv.gz"
    outside = subprocess.run(
        [sys.executable, "-I", "-c", OUTSIDE, str(project / "out"), str(table)],
        capture_output=True, text=True, check=True, cwd=project,
    )  # fmt: skip
    found = json.loads(outside.stdout.splitlines()[-1])
    assert not found["trainerd"]
    assert found["right"] == pytest.approx([about["metrics"]["val_accuracy"]] * 2)
    assert "minimum" in run("history") and "rollback" in run("history")
