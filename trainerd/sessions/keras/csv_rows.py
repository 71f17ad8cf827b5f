"""The rows of a CSVLogger's file that a resumed run keeps."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainerd.system import durable_files


def keep_rows_before(epoch: int, logger: Any, earlier: int | None) -> None:
    """Remove the rows of epochs that will be trained again from the end of a CSVLogger's file.

    Args:
      epoch: the epoch that is resumed.
      logger: the CSVLogger.
      earlier: the number of rows of an earlier training; None if unknown.
    """
    path = Path(logger.filename)
    if not path.exists() or (logger.append and earlier is None and epoch == 0):
        return
    rows = read_rows(logger)
    earlier = earlier if earlier is not None and len(rows) > earlier else 0  # it may have been emptied since
    if rows and rows[0][:1] != ["epoch"]:  # a program's own, of another form
        return
    while len(rows) > 1 + earlier and not _is_before(epoch, rows[-1]):
        rows.pop()
    kept = io.StringIO()
    csv.writer(kept, delimiter=logger.sep).writerows(rows)
    durable_files.write_atomic(path, kept.getvalue().encode())


def read_rows(logger: Any) -> list[list[str]]:
    """Return the rows of a CSVLogger's file, the header first; none if there is no file."""
    path = Path(logger.filename)
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.reader(file, delimiter=logger.sep))


def _is_before(epoch: int, row: Sequence[str]) -> bool:
    try:
        return int(row[0]) < epoch
    except (IndexError, ValueError):  # a row that was cut short
        return False
