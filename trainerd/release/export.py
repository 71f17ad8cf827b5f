"""Packages a checkpoint for use elsewhere: its model, a README, checksums. Imports TensorFlow."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd import open_job
from trainerd.checkpoints import evaluations
from trainerd.checkpoints.format.os_errors import is_disk_full
from trainerd.checkpoints.manifest import FileRecord, Manifest
from trainerd.config.fingerprint import of_config
from trainerd.config.schema import Config
from trainerd.errors import EntryError, ReleaseError, StorageError, TrainerdError
from trainerd.history import plots
from trainerd.history.fork import origin_of
from trainerd.history.story import story_of
from trainerd.job.user_code import job_traceback, user_code
from trainerd.loop.contract import Exportable
from trainerd.loop.recorder import as_validation
from trainerd.release.alone import digest
from trainerd.release.archive import archive
from trainerd.release.verify import references_of, verify
from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import storage
from trainerd.system.staging import put_in_place, staged
from trainerd.text import figure

SAVEDMODEL, KERAS, WEIGHTS = "savedmodel", "keras", "weights"
NAMES = {SAVEDMODEL: "savedmodel", KERAS: "model.keras", WEIGHTS: "model.weights.h5"}
_HOW = """\
  the job has nothing to export: neither one Keras model in its state nor an `export`. Give it one:

      def export(directory):
          tf.saved_model.save(module, str(directory))       # or model.export(str(directory))

      return trainerd.Job(..., export=export)

  An Estimator has `export_saved_model` and exporters of its own: docs/experiment.md."""
_FORMAT = 1


@dataclass(frozen=True)
class Release:
    """A release to put together.

    Attributes:
      config: the config of the job.
      rundir: the run directory.
      checkpoint: what is packaged.
      formats: which of `NAMES`; empty for all that the job can be written as, but `weights`.
    """

    config: Config
    rundir: RunDirectory
    checkpoint: Manifest
    formats: Sequence[str] = ()


def release(wanted: Release, folder: Path, packed: Path | None = None) -> Mapping[str, str]:
    """Write a release, verify it, and put it in place as a whole or not at all.

    Args:
      wanted: what is put together.
      folder: where; it does not exist, or is empty.
      packed: an archive that is written in place of the folder; None for the folder.

    Returns:
      What was compared, by format.

    Raises:
      EntryError: the job has nothing to export.
      ReleaseError: what was written does not give what the checkpoint gives.
      StorageError: it cannot be written.
      UsageError: the name is taken, by another export that was faster too.
    """
    session = open_job.open_to_read(wanted.config)
    session.load(wanted.rundir.prefix(wanted.checkpoint.step))
    exportable = session.exportable()
    formats = _formats(wanted, exportable)
    figures = session.score() if session.can_score else {}
    with storage(f"write the release in {folder}"), staged(folder) as staging:
        for form in formats:
            _write(exportable, form, staging / NAMES[form])
        compared = _verified(wanted, exportable, figures, staging, formats)
        _describe(wanted, as_validation(figures), compared, staging)
        if packed is None:
            put_in_place(staging, folder)
        else:
            archive(staging, staging.with_name(packed.name))
            put_in_place(staging.with_name(packed.name), packed)
    return compared


def _formats(release: Release, exportable: Exportable) -> list[str]:
    has_model, has_export = exportable.model is not None, exportable.export is not None
    possible = [*([SAVEDMODEL] if has_model or has_export else []), *([KERAS, WEIGHTS] if has_model else [])]
    wanted = list(release.formats) or [form for form in possible if form != WEIGHTS]
    if not possible:
        raise EntryError(f"entry = {release.config.entry!r}:\n{_HOW}")
    if missing := [form for form in wanted if form not in possible]:
        raise ReleaseError(f"--format {missing[0]} needs one Keras model in the job's state, and there is none.")
    return wanted


def _write(exportable: Exportable, form: str, path: Path) -> None:
    def as_release_error(error: BaseException) -> TrainerdError:
        if isinstance(error, ReleaseError):
            return error
        if is_disk_full(error):
            return StorageError(f"cannot write {path.name}: no space left on the device. There is no release.")
        return ReleaseError(f"the job could not be exported as {form}:\n{job_traceback(error)}")

    with user_code(as_release_error):
        if form == SAVEDMODEL and exportable.export is not None:
            exportable.export(path)
            if not path.is_dir() or not any(path.iterdir()):
                raise ReleaseError(f"the job's `export` wrote nothing into {path.name}.")
        elif form == SAVEDMODEL:
            exportable.model.export(str(path), verbose=False)
        elif form == KERAS:
            exportable.model.save(str(path))
        else:
            exportable.model.save_weights(str(path))


def _verified(
    release: Release, exportable: Exportable, figures: Mapping[str, float], staging: Path, formats: Sequence[str]
) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="trainerd-release-") as scratch:
        variables = _variables(release.rundir.prefix(release.checkpoint.step))
        references = references_of(exportable, variables, figures, Path(scratch))
        return {form: verify(staging / NAMES[form], form, references, Path(scratch)) for form in formats}


def _variables(prefix: Path) -> set[str]:
    """Return a digest of every variable of a checkpoint."""
    reader = tf.train.load_checkpoint(str(prefix))
    types: Mapping[str, Any] = reader.get_variable_to_dtype_map()
    return {digest(reader.get_tensor(name)) for name, kind in types.items() if kind.is_numpy_compatible}


def _describe(release: Release, figures: Mapping[str, float], compared: Mapping[str, str], staging: Path) -> None:
    """Write README.md with its picture, and release.json with the checksums of everything else."""
    has_picture = _draw(release.rundir, release.checkpoint.step, staging / "loss.png")
    about = _about(release, figures, compared)
    (staging / "README.md").write_text(_readme(about, has_picture=has_picture), encoding="utf-8")
    files = sorted(path for path in staging.rglob("*") if path.is_file())
    about["files"] = {str(path.relative_to(staging)): vars(FileRecord.of(path)) for path in files}
    (staging / "release.json").write_text(json.dumps(about, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _about(release: Release, figures: Mapping[str, float], compared: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of `release.json`, except the files."""
    checkpoint, origin = release.checkpoint, origin_of(release.rundir)
    return {
        "format": _FORMAT,
        "job": release.config.entry,
        "step": checkpoint.step,
        "saved_at": checkpoint.at,
        "trained_secs": checkpoint.trained_secs,
        "metrics": _plain(evaluations.figures(release.rundir, checkpoint)),
        "figures": _plain(figures),
        "verified": dict(compared),
        "config": of_config(release.config),
        "fingerprint": checkpoint.fingerprint,
        "lineage": [asdict(change) for change in checkpoint.lineage],
        "origin": None if origin is None else vars(origin),
    }


def _plain(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _readme(facts: Mapping[str, Any], *, has_picture: bool) -> str:
    """Return the README of a release."""
    lines = [f"# {facts['job']}, step {facts['step']:,}", ""]
    if facts["figures"]:
        lines += ["| metric | value |", "|---|---|"]
        lines += [f"| {n} | {figure(math.nan if v is None else v)} |" for n, v in facts["figures"].items()]
        lines.append("")
    loads = {
        SAVEDMODEL: 'loaded = tf.saved_model.load("savedmodel")  # keep it while its functions are called',
        KERAS: 'model = keras.models.load_model("model.keras")',
        WEIGHTS: 'model.load_weights("model.weights.h5")',
    }
    lines += ["```python", *(loads[form] for form in facts["verified"]), "```", ""]
    lines += ["Each was loaded again and compared with the checkpoint:", ""]
    lines += [f"- {form}: {compared}" for form, compared in facts["verified"].items()]
    lines += ["", "`release.json` has the metrics, the config, the versions, and the checksum of each file."]
    if has_picture:
        lines += ["", "![The loss, and the step that was chosen](loss.png)"]
    return "\n".join(lines) + "\n"


def _draw(rundir: RunDirectory, step: int, path: Path) -> bool:
    """Draw the loss and the chosen step. Returns whether there is a curve of it."""
    try:
        story = story_of(rundir)
    except StorageError:
        return False
    if not story.curve.steps:
        return False
    plots.as_picture(story, path, chosen=step)
    return True
