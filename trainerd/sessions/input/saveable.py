"""Checks that the input of a TensorFlow 2 job can be saved."""

from __future__ import annotations

import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.op_kinds import CSV
from trainerd.errors import EntryError, StorageError
from trainerd.sessions.input.pipeline import dataset_of, inputs, ops_of, repeats_within, setting, stage_name, stages

log = logging.getLogger(__name__)

_OPENED_LATER = {"Shuffle", "Concatenate"}  # what they read is not part of a position before they have read of it


def has_position(prefix: Path) -> bool:
    """Return whether a checkpoint holds a dataset's position.

    True if the checkpoint cannot be read: its restore reports the error.
    """
    try:
        return any(name.startswith("iterator/") for name, _ in tf.train.list_variables(str(prefix)))
    except tf.errors.OpError:
        return True


def require_saveable(iterator: Any, otherwise: str) -> None:
    """Refuse an input whose position TensorFlow cannot save, before the first checkpoint would fail.

    Args:
      iterator: of the input.
      otherwise: what to do to train without its position.

    Raises:
      EntryError: its position cannot be saved; the message says what to write instead.
    """
    if any(stage_name(stage) == "Snapshot" for stage in stages(dataset_of(iterator))):
        log.warning(
            "the dataset has a `snapshot`: where its position is saved while the snapshot is still being written, "
            "TensorFlow gives no batch after it. Read it to its end before; or use Dataset.save and Dataset.load, or "
            "cache(...); or %s.",
            otherwise,
            extra={"event": "snapshot"},
        )
    if ops_of(dataset_of(iterator)) & CSV:
        raise EntryError(
            "the dataset reads CSV files with TensorFlow's CsvDataset (make_csv_dataset does so too), whose saved "
            "position leaves rows out: after a pause the rest of a file would be lost. Read the lines with a "
            f"tf.data.TextLineDataset, and split them in `map` with tf.io.decode_csv; or {otherwise}."
        )
    if any(map(_hangs, stages(dataset_of(iterator)))):
        raise EntryError(
            "the dataset samples from datasets that all end (sample_from_datasets). After one of them has ended, "
            "TensorFlow cannot resume it: it would wait forever. Sample from datasets with repeat(), or "
            f"with stop_on_empty_dataset=True; or {otherwise}."
        )
    _try(iterator, otherwise)
    dataset = dataset_of(iterator)
    later = [below for stage in stages(dataset) if stage_name(stage) in _OPENED_LATER for below in inputs(stage)]
    later = [below for below in later if stage_name(below) not in _OPENED_LATER]  # of those, what is below
    if later:  # all at once: there may be hundreds
        _try(iter(tf.data.Dataset.zip(*later).with_options(dataset.options())), otherwise)


def _try(iterator: Any, otherwise: str) -> None:
    """Save an iterator's position."""
    with tempfile.TemporaryDirectory(prefix="trainerd-") as folder:
        try:
            tf.train.Checkpoint(iterator=iterator).write(str(Path(folder) / "input"))
        except tf.errors.OpError as error:
            if folder in str(error) or isinstance(error, tf.errors.ResourceExhaustedError):  # of writing
                raise StorageError(
                    f"cannot test in {folder} whether the dataset's position can be saved: {error}"
                ) from error
            if "ReadVariableOp is stateful" in str(error):
                raise EntryError(
                    "the dataset's position cannot be saved, so a pause would lose it: a function of the dataset reads "
                    "a variable, such as the seed of a Keras layer that augments. Put that layer into the model, or "
                    f"{otherwise}."
                ) from None
            if "SeedGenerator is stateful" in str(error):
                raise EntryError(
                    "the dataset's position cannot be saved, so a pause would lose it: a function of the dataset, such "
                    "as that of an interleave or a flat_map, calls shuffle(...). Shuffle what comes out of it, "
                    f"or {otherwise}."
                ) from None
            raise EntryError(
                "the dataset's position cannot be saved, so a pause would lose it: "
                f"{re.sub(r'{{.*?}} |  ?.Op:.*', '', str(error).splitlines()[0])} "
                "Write it without from_generator, without tf.py_function and tf.numpy_function (or "
                "tf.numpy_function(..., stateful=False), if the function keeps nothing between calls), and without "
                "stateful random ops in `map` (use tf.random.stateless_* with a seed from Dataset.random), or "
                f"{otherwise}."
            ) from None  # the message has what TensorFlow says


def _hangs(stage: tf.data.Dataset) -> bool:
    """Return whether a stage chooses without end from datasets that end, and stops when all have ended.

    TensorFlow does not save how many have ended: if one had when the position was saved, the count never reaches all.
    """
    if stage_name(stage) != "DirectedInterleave" or setting(stage, "stop_on_empty_dataset"):
        return False
    choice, *chosen = inputs(stage)
    return _is_endless(choice) and not any(map(_is_endless, chosen))


def _is_endless(dataset: tf.data.Dataset) -> bool:
    """Return whether it has no end, or may have none. If a stage takes only some elements, the stages below decide."""
    name, below = stage_name(dataset), inputs(dataset)
    if name == "DirectedInterleave":
        choice, *chosen = below
        stops = setting(dataset, "stop_on_empty_dataset")
        return _is_endless(choice) and (all if stops else any)(map(_is_endless, chosen))
    size = int(dataset.cardinality())
    if size != tf.data.UNKNOWN_CARDINALITY:
        return size == tf.data.INFINITE_CARDINALITY or size >= ENDLESS
    if name.startswith("Take"):
        return False
    return repeats_within(dataset) or (all if name == "Zip" else any)(map(_is_endless, below))


ENDLESS = 2**62  # elements: from there on nobody sees the end
