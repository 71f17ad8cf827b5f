"""The settings of a warm start, as `tf.estimator.WarmStartSettings` was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple


class WarmStartSettings(NamedTuple):
    """The variables that begin with values of another model's checkpoint; see `tf.compat.v1.train.warm_start`.

    Attributes:
      ckpt_to_initialize_from: a checkpoint, or a folder with one.
      vars_to_warm_start: a regular expression, names or variables. None: none but those with a vocabulary. Default: all
        trainable ones.
      var_name_to_vocab_info: name to `tf.compat.v1.train.VocabInfo`.
      var_name_to_prev_var_name: name to the name in the checkpoint.
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: dict[str, Any] | None = None
    var_name_to_prev_var_name: dict[str, str] | None = None


def as_settings(given: Any) -> WarmStartSettings | None:
    """Return the settings that an Estimator was given: settings, or the path of a checkpoint or a SavedModel.

    Raises:
      ValueError: it is something else.
    """
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if isinstance(given, str | bytes | os.PathLike):
        path = os.fsdecode(given)
        is_export = Path(path, "saved_model.pb").exists()
        return WarmStartSettings(str(Path(path, "variables", "variables")) if is_export else path)
    raise ValueError(f"warm_start_from must be a string or a WarmStartSettings, instead got {type(given)}")
