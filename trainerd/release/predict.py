"""Writes the predictions of a checkpoint as a CSV file. Imports TensorFlow."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainerd import open_job
from trainerd.checkpoints.manifest import Manifest
from trainerd.config.schema import Config
from trainerd.errors import EntryError, JobError
from trainerd.job.user_code import called_at_boundary
from trainerd.rundir.paths import RunDirectory
from trainerd.system.durable_files import storage, write_atomic

ID = "id"
_IS_ID = re.compile(r"(?:^|_)id$|[a-z]I[dD]$", re.ASCII)  # id, user_id, ImageId, PassengerID; not valid
_HOW = """\
  the job has no predictions. Give it some:

      def predict():
          return {"id": ids, "label": labels}       # a column each; without an id, rows are numbered from 1

      return trainerd.Job(..., predict=predict)     # of a KerasJob: test_data=...

  An Estimator has `predict` of its own: docs/experiment.md."""


def predict(config: Config, rundir: RunDirectory, checkpoint: Manifest, output: Path) -> int:
    """Write the job's predictions.

    Args:
      config: the job.
      rundir: the run directory.
      checkpoint: whose model predicts.
      output: the file, which is put in place as a whole; or a pipe or device, which is written to.

    Returns:
      The number of rows.

    Raises:
      EntryError: the job has no predictions.
      JobError: they failed, or are not columns of the same length.
      StorageError: the file cannot be written.
    """
    session = open_job.open_to_read(config)
    session.load(rundir.prefix(checkpoint.step))
    function = session.exportable().predict
    if function is None:
        raise EntryError(f"entry = {config.entry!r}:\n{_HOW}")
    with called_at_boundary("the job's predict", checkpoint.step):
        found = function()
    columns = _columns(found, checkpoint.step)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    with storage(f"write {output}"):
        if output.exists() and not output.is_file():  # such as /dev/stdout
            output.write_text(text.getvalue(), encoding="utf-8")
        else:
            write_atomic(output.resolve(), text.getvalue().encode())
    return len(next(iter(columns.values())))


def _columns(found: Mapping[str, Any], step: int) -> dict[str, list[Any]]:
    """Return the columns, as Python's numbers and texts; rows get ids from 1 on where there is only one column.

    Raises:
      JobError: they are not columns of the same length.
    """
    try:
        columns = {
            str(name): [_plain(value) for value in np.asarray(values).tolist()] for name, values in found.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise JobError(
            f"predict must return a dict of name to values, and returned {found!r}", step=step, sound=True
        ) from None
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise JobError(f"predict must return columns of the same length, and returned {lengths}", step=step, sound=True)
    if not any(_IS_ID.search(name) for name in columns):
        return {ID: list(range(1, next(iter(lengths.values())) + 1)), **columns}
    return columns


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
