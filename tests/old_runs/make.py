"""Makes the run directories here: `python -m tests.old_runs.make NAME`, where NAME is of those below.

They are what earlier versions of trainerd have left. So one that is there is never made again: where the format of a
checkpoint changes, make another folder beside it, with the version before the change.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.process.trainers import Forkserver, variables
from trainerd.checkpoints import manifest
from trainerd.rundir.paths import RunDirectory

HERE = Path(__file__).parent
RUNS = HERE / "runs"
KINDS = ("function", "keras_model", "graph", "graph_loop", "function_loop", "fit")
FURTHER = 100  # steps, from the pause to the end
STEPS_AN_EPOCH = 500  # of fit's
FOR_EVER = 10**9


def prepare(folder: Path, kind: str) -> None:
    """Put a kind's program and its config into a folder."""
    for name in ("jobs.py", "fit.py"):
        shutil.copy(HERE / name, folder)
    text = f'entry = "jobs:{kind}"\nlogdir = "run"\n[checkpoint]\nkeep_last = 1\n'
    (folder / "trainerd.toml").write_text(text, encoding="utf-8")


def request(kind: str, end: int) -> dict[str, Any]:
    """What the forkserver is asked for, to train to this step; `fit`, to the end of the epoch that has it."""
    if kind == "fit":
        return {"program": "fit.py", "arguments": [str(-(-end // STEPS_AN_EPOCH))]}
    return {"run": ["run", "--max-steps", str(end)]}


def digests(rundir: RunDirectory) -> dict[str, str]:
    """A digest of the bytes of each variable in the newest checkpoint."""
    found = variables(rundir.prefix(max(rundir.steps())))
    return {name: hashlib.sha256(bytes.fromhex(value)).hexdigest()[:16] for name, value in sorted(found.items())}


def make(server: Forkserver, name: str, kind: str) -> None:
    """Train for a moment, pause, keep the run directory; and note what it comes to."""
    with tempfile.TemporaryDirectory() as made:
        folder, rundir = Path(made), RunDirectory(Path(made) / "run")
        prepare(folder, kind)
        trainer = server.start(folder, **request(kind, FOR_EVER))
        trainer.until_training(STEPS_AN_EPOCH + 1)
        assert trainer.pause() == 0, trainer.text
        step = max(rundir.steps())
        assert manifest.read(rundir.manifest(step)).reason == "pause" and step % STEPS_AN_EPOCH
        kept = RUNS / name / kind
        shutil.copytree(rundir.path, kept, ignore=shutil.ignore_patterns("events.out.*", "*.log", "lock"))
        trainer = server.start(folder, **request(kind, step + FURTHER))
        assert trainer.end() == 0, trainer.text
        ends = {"end": step + FURTHER, "variables": digests(rundir)}
        (kept / "ends.json").write_text(json.dumps(ends, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    forkserver = Forkserver()
    for each in KINDS:
        make(forkserver, sys.argv[1], each)
    forkserver.close()
