"""Exports after an evaluation, as the exporters of `tf.estimator` did.

An export of a checkpoint that is there already is not made again: so a run that is killed between an export and the
note of it exports the same as one that is not.
"""

from __future__ import annotations

import abc
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.programs.estimator.arguments import names_of_arguments
from trainerd.programs.estimator.export.saved_model import checkpoint_of_export, identity_of, keep_newest
from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.regular_files import read_regular

tf1 = tf.compat.v1

_NAME_BEFORE = "best.json"  # the best metrics, in the folder itself, in 0.2 and before


class Exporter(abc.ABC):
    """Exports a model after an evaluation."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The folder below `model_dir/export`."""

    @abc.abstractmethod
    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Export a checkpoint, if that is wanted.

        Args:
          estimator: what has trained it.
          export_path: the folder of this exporter.
          checkpoint_path: the prefix.
          eval_result: the metrics of its evaluation.
          is_the_final_export: whether training is over.

        Returns:
          The path of the export; None if there is none.
        """


class _SavedModelExporter(Exporter):
    """Exports a SavedModel."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError(f"`exports_to_keep`, if provided, must be a positive number. Got {exports_to_keep}")
        self._name = name
        self._receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text
        self._exports_to_keep = exports_to_keep

    @property
    def name(self) -> str:
        """See `Exporter`."""
        return self._name

    def _write(self, estimator: Any, export_path: str, checkpoint_path: str) -> Any:
        """Return the export of this checkpoint, which may be there already."""
        found = export_of(export_path, checkpoint_path)
        if found is None:
            found = estimator.export_saved_model(
                export_path,
                self._receiver_fn,
                assets_extra=self._assets_extra,
                as_text=self._as_text,
                checkpoint_path=checkpoint_path,
            )
        keep_newest(Path(export_path), self._exports_to_keep)
        return found


class LatestExporter(_SavedModelExporter):
    """Exports each checkpoint that is evaluated.

    Args:
      name: the folder below `model_dir/export`.
      serving_input_receiver_fn: returns a ServingInputReceiver; None for a Keras model or a `trainerd.Job`.
      assets_extra: the path below assets.extra to the file that is copied there.
      as_text: whether the graph is written as text.
      exports_to_keep: how many of the newest are kept. None: all.

    Raises:
      ValueError: `exports_to_keep` is not positive.
    """

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """See `Exporter`."""
        return self._write(estimator, export_path, checkpoint_path)


class FinalExporter(_SavedModelExporter):
    """Exports the checkpoint at the end of training. The arguments are those of `LatestExporter`."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, None)

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """See `Exporter`."""
        if not is_the_final_export:
            return None
        tf1.logging.info("Performing the final export in the end of training.")
        return self._write(estimator, export_path, checkpoint_path)


def _loss_smaller(best_eval_result: Any, current_eval_result: Any) -> bool:
    names = ("best_eval_result", "current_eval_result")
    return loss_is_smaller(best_eval_result, current_eval_result, names)


class BestExporter(_SavedModelExporter):
    """Exports a checkpoint that is better than all before it.

    What is best is kept beside the folder of its exports, in `export/NAME.json`.

    Args:
      name: the folder below `model_dir/export`.
      serving_input_receiver_fn: returns a ServingInputReceiver; None for a Keras model or a `trainerd.Job`.
      event_file_pattern: not used: the best is in a file of its own.
      compare_fn: called with `best_eval_result` and `current_eval_result`; whether the current one is better. Default:
        whether its loss is smaller.
      assets_extra, as_text, exports_to_keep: see `LatestExporter`.

    Raises:
      ValueError: `exports_to_keep` is not positive, or `compare_fn` takes other arguments.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., bool] = _loss_smaller,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        if compare_fn is None:
            raise ValueError("`compare_fn` must not be None.")
        taken = names_of_arguments(compare_fn)
        for argument in ("best_eval_result", "current_eval_result"):
            if argument not in taken:
                raise ValueError(f"compare_fn ({compare_fn}) must include {argument} argument.")
        if unknown := sorted(taken - {"best_eval_result", "current_eval_result"}):
            raise ValueError(f"compare_fn ({compare_fn}) has following not expected args: {unknown}")
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        self._compare_fn = compare_fn

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """See `Exporter`."""
        folder = Path(export_path)
        best = best_in(folder)
        if best is not None and not self._compare_fn(best_eval_result=best, current_eval_result=eval_result):
            return None
        tf1.logging.info("Performing best model export.")
        found = self._write(estimator, export_path, checkpoint_path)
        if eval_result is not None:
            keep_best(folder, eval_result)
        return found


def export_of(base: str | bytes, checkpoint_path: str | None) -> bytes | None:
    """Return the export of a checkpoint that is there already; None if there is none."""
    wanted = identity_of(os.fsdecode(checkpoint_path)) if checkpoint_path else {}
    if wanted.get("step") is None:
        return None
    folder = Path(os.fsdecode(base))
    for path in sorted(folder.iterdir(), reverse=True) if folder.is_dir() else ():
        if checkpoint_of_export(path) == wanted:
            return os.fsencode(path)
    return None


def export_by_each(exporters: Sequence[Any], export: Callable[[Any], Any]) -> list[Any]:
    """Export by every exporter or strategy. An error gets the name of the one that fails. Returns the results."""
    made = []
    for each in exporters:
        try:
            made.append(export(each))
        except Exception as error:
            error.add_note(f"This was in the export {each.name!r}.")
            raise
    return made


def best_in(folder: Path) -> dict[str, Any] | None:
    """Return the metrics of the best so far.

    Args:
      folder: the folder of the exports.

    Returns:
      The metrics; None if there is none, or the file is damaged.
    """
    for path in (_path_for(folder), folder / _NAME_BEFORE):
        try:
            with storage(f"read {path}", missing_ok=True):
                found: dict[str, Any] = json.loads(read_regular(path))
                return {name: math.nan if value is None else value for name, value in found.items()}
        except (ValueError, AttributeError):
            return None
    return None


def keep_best(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Keep these metrics as the best from now on, in a file that outlives restarts and the checkpoint.

    It is beside the folder of the exports: programs take the last name in that folder for the newest export.

    Args:
      folder: the folder of the exports.
      metrics: the metrics.

    Raises:
      StorageError: it cannot be written.
    """
    plain = {
        name: (value.item() if isinstance(value, np.generic) else value)
        for name, value in metrics.items()
        if isinstance(value, int | float | np.number)
    }
    finite = {name: value if math.isfinite(value) else None for name, value in plain.items()}
    path = _path_for(folder)
    with storage(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(finite, indent=1, allow_nan=False).encode() + b"\n", for_all=True)
        (folder / _NAME_BEFORE).unlink(missing_ok=True)


def _path_for(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def loss_is_smaller(best: Mapping[str, Any], current: Mapping[str, Any], names: tuple[str, str]) -> bool:
    """Return whether the loss of the second is smaller.

    Args:
      best, current: the metrics.
      names: of the two, for the message.

    Raises:
      ValueError: one has no loss.
    """
    for name, metrics in zip(names, (best, current), strict=True):
        if not metrics or "loss" not in metrics:
            raise ValueError(f"{name} cannot be empty or no loss is found in it.")
    return bool(best["loss"] > current["loss"] or math.isnan(best["loss"]))
