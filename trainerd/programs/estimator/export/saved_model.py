"""Writes a checkpoint of an estimator as a SavedModel, below a folder, named by the time: whole, or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.format.os_errors import is_disk_full
from trainerd.checkpoints.manifest import FileRecord
from trainerd.errors import StorageError, UsageError
from trainerd.programs.estimator.checkpoints import require_fit
from trainerd.programs.estimator.export.outputs import signatures
from trainerd.programs.estimator.graph.blueprint import Blueprint
from trainerd.programs.estimator.model_fn import ModeKeys
from trainerd.system.durable_files import storage
from trainerd.system.staging import put_in_place, staged

tf1 = tf.compat.v1

ABOUT = "release.json"
_DIGITS = 10  # of the seconds since 1970, for some centuries


def write_graph(
    folder: Path, blueprint: Blueprint, receiver_fn: Callable[[], Any], checkpoint_path: str, *, as_text: bool
) -> None:
    """Write a model that a `model_fn` builds into an empty folder, as a SavedModel.

    Args:
      folder: the folder.
      blueprint: the model.
      receiver_fn: returns a ServingInputReceiver.
      checkpoint_path: the prefix of the checkpoint.
      as_text: whether the graph is written as text.
    """
    with tf.Graph().as_default():
        blueprint.begin_graph()
        receiver = receiver_fn()
        spec = blueprint.build_on(receiver.features, getattr(receiver, "labels", None), ModeKeys.PREDICT)
        alternatives = getattr(receiver, "receiver_tensors_alternatives", None)
        found = signatures(spec.export_outputs, receiver.receiver_tensors, alternatives)
        require_fit(checkpoint_path)
        scaffold = spec.scaffold
        local_init_op = scaffold.local_init_op
        with tf1.Session(config=blueprint.config.session_config) as session:
            saver = scaffold.saver or tf1.train.Saver(sharded=True)
            _restore(saver, session, checkpoint_path)
            folder.rmdir()  # the builder makes it
            builder = tf1.saved_model.Builder(str(folder))
            builder.add_meta_graph_and_variables(
                session,
                tags=[tf.saved_model.SERVING],
                signature_def_map=found,
                assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
                main_op=local_init_op if local_init_op is not None else tf1.train.Scaffold.default_local_init_op(),
                saver=saver,
                strip_default_attrs=True,
            )
            builder.save(as_text)


def write_below(
    base: Path, prefix: str, write: Callable[[Path], None], assets_extra: Mapping[str, str] | None = None
) -> Path:
    """Write an export into a new folder below this one.

    Args:
      base: the folder.
      prefix: the checkpoint that is exported.
      write: writes it into an empty folder.
      assets_extra: the path below assets.extra to the file that is copied there.

    Returns:
      The folder.

    Raises:
      StorageError: it cannot be written.
      ValueError: the model cannot be exported, or the checkpoint does not fit it.
    """
    with storage(f"write an export in {base}"):
        base.mkdir(parents=True, exist_ok=True)
        with staged(base / "export") as staging:
            try:
                write(staging)
                _add_extras(staging, assets_extra or {})
                describe(staging, prefix)
                return _name_by_time(staging, base)
            except Exception as error:  # whichever part of TensorFlow has met a full disk
                if is_disk_full(error):
                    raise StorageError(f"cannot write an export in {base}: no space left on the device.") from error
                raise


def _add_extras(folder: Path, extras: Mapping[str, str]) -> None:
    for name, source in extras.items():
        target = folder / "assets.extra" / name
        if not target.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"assets_extra: {name!r} is not below the export.")
        path = Path(os.fsdecode(source))  # it may be bytes, as TensorFlow's paths of exports are
        if not path.is_file():
            raise ValueError(f"assets_extra: {path}, the source of {name!r}, is not a file.")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def checkpoint_of_export(folder: Path) -> dict[str, Any]:
    """Return the step of the checkpoint that an export was made of, and the checksum of its index; empty if it has
    none."""
    try:
        found = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        return {"step": found["step"], "index": found["index"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def identity_of(prefix: str) -> dict[str, Any]:
    """Return the same of a checkpoint: another one of its step, such as one of an earlier line, has another index."""
    step = prefix.rpartition("-")[2]
    index = Path(f"{prefix}.index")
    return {
        "step": int(step) if step.isdigit() else None,
        "index": FileRecord.of(index).xxh128 if index.exists() else "",
    }


def exports_in(base: Path) -> list[Path]:
    """Return the exports below a folder, the oldest first."""
    if not base.is_dir():
        return []
    return sorted(path for path in base.iterdir() if len(path.name) == _DIGITS and path.name.isdigit())


def keep_newest(base: Path, count: int | None) -> None:
    """Delete all exports below a folder but the newest so many; None for all of them."""
    if count is not None:
        for path in exports_in(base)[:-count]:
            shutil.rmtree(path, ignore_errors=True)


def _name_by_time(staging: Path, base: Path) -> Path:
    """Put an export in place under a name by the time, later than those that are there."""
    while True:
        names = [int(path.name) for path in exports_in(base)]
        folder = base / f"{max([int(time.time()), *(name + 1 for name in names)]):0{_DIGITS}d}"
        with contextlib.suppress(UsageError):  # another export has just taken the name
            put_in_place(staging, folder)
            return folder


def _restore(saver: Any, session: Any, prefix: str) -> None:
    try:
        saver.restore(session, prefix)
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(
            "Could not load all requested variables from checkpoint. Please make sure your model_fn does not expect "
            f"variables that were not saved in the checkpoint.\n\nEncountered error while restoring {prefix}: "
            f"{str(error).splitlines()[0]}"
        ) from error


def describe(folder: Path, prefix: str) -> None:
    """Write which checkpoint was exported, with the checksums of its files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    about = {
        "checkpoint": Path(prefix).name,
        **identity_of(prefix),
        "files": {str(path.relative_to(folder)): vars(FileRecord.of(path)) for path in files},
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
