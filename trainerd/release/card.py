"""The card of a release: what it is, in JSON and in words, with a picture of the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainerd.checkpoints.lineage import as_json
from trainerd.checkpoints.manifest import Manifest
from trainerd.config.fingerprint import of_config
from trainerd.config.schema import Config
from trainerd.errors import StorageError
from trainerd.history import plots
from trainerd.history.fork import origin_of
from trainerd.history.story import story_of
from trainerd.rundir.paths import RunDirectory
from trainerd.text import figure

FORMAT = 1


def about(
    config: Config,
    rundir: RunDirectory,
    checkpoint: Manifest,
    metrics: Mapping[str, float],
    figures: Mapping[str, float],
    compared: Mapping[str, str],
) -> dict[str, Any]:
    """Return the content of `release.json`, except the files.

    Args:
      config: the config of the job.
      rundir: the run directory.
      checkpoint: what is released.
      metrics: of the checkpoint, with its evaluations.
      figures: the metrics of an evaluation when it was released.
      compared: what was compared, by format.
    """
    origin = origin_of(rundir)
    return {
        "format": FORMAT,
        "job": config.entry,
        "step": checkpoint.step,
        "saved_at": checkpoint.at,
        "trained_secs": checkpoint.trained_secs,
        "metrics": _plain(metrics),
        "figures": _plain(figures),
        "verified": dict(compared),
        "config": of_config(config),
        "fingerprint": checkpoint.fingerprint,
        "lineage": as_json(checkpoint.lineage),
        "origin": None if origin is None else vars(origin),
    }


def _plain(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def readme(facts: Mapping[str, Any], *, has_picture: bool) -> str:
    """Return the README of a release."""
    lines = [f"# {facts['job']}, step {facts['step']:,}", ""]
    if facts["figures"]:
        lines += ["| metric | value |", "|---|---|"]
        lines += [f"| {n} | {figure(math.nan if v is None else v)} |" for n, v in facts["figures"].items()]
        lines.append("")
    loads = {
        "savedmodel": 'loaded = tf.saved_model.load("savedmodel")  # keep it while its functions are called',
        "keras": 'model = keras.models.load_model("model.keras")',
        "weights": 'model.load_weights("model.weights.h5")',
    }
    lines += ["```python", *(loads[form] for form in facts["verified"]), "```", ""]
    lines += ["Each was loaded again and compared with the checkpoint:", ""]
    lines += [f"- {form}: {compared}" for form, compared in facts["verified"].items()]
    lines += ["", "`release.json` has the metrics, the config, the versions, and the checksum of each file."]
    if has_picture:
        lines += ["", "![The loss, and the step that was chosen](loss.png)"]
    return "\n".join(lines) + "\n"


def draw(rundir: RunDirectory, step: int, path: Path) -> bool:
    """Draw the loss and the chosen step. Returns whether there is a curve of it."""
    try:
        story = story_of(rundir)
    except StorageError:
        return False
    if not story.curve.steps:
        return False
    plots.as_picture(story, path, chosen=step)
    return True
