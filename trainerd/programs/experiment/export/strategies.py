"""The exports of an Experiment, as the export strategies of `tf.contrib.learn` did."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from trainerd.checkpoints.format.reader import newest_checkpoint
from trainerd.programs.estimator.arguments import taken_by
from trainerd.programs.estimator.base import BaseEstimator
from trainerd.programs.estimator.export.receivers import build_parsing_serving_input_receiver_fn
from trainerd.programs.estimator.export.saved_model import describe, keep_newest
from trainerd.programs.experiment.export.exporters import best_in, export_of, keep_best, loss_is_smaller
from trainerd.system.durable_files import storage
from trainerd.system.staging import put_in_place, staged

tf1 = tf.compat.v1


class ExportStrategy(NamedTuple):
    """Exports a model for one purpose.

    Attributes:
      name: the folder below `model_dir/export`.
      export_fn: called with the estimator and the folder and, as it takes them, `checkpoint_path`, `eval_result` and
        `strip_default_attrs`; returns the path of the export.
      strip_default_attrs: passed to `export_fn`.
    """

    name: str
    export_fn: Callable[..., Any]
    strip_default_attrs: bool | None = None

    def export(self, estimator: Any, export_path: Any, checkpoint_path: Any = None, eval_result: Any = None) -> Any:
        """Export a checkpoint.

        Args:
          estimator: what has trained it.
          export_path: the folder of this strategy.
          checkpoint_path: the prefix. None: the newest.
          eval_result: the metrics of its evaluation.

        Returns:
          What `export_fn` returns.

        Raises:
          ValueError: an evaluation was passed, and `export_fn` takes none.
        """
        offered = {"checkpoint_path": checkpoint_path, "eval_result": eval_result}
        offered["strip_default_attrs"] = self.strip_default_attrs
        given = {name: value for name, value in offered.items() if value is not None}
        return self.export_fn(estimator, export_path, **taken_by(self.export_fn, **given))


def make_export_strategy(
    serving_input_fn: Callable[[], Any] | None,
    default_output_alternative_key: str | None = None,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    exports_to_keep: int | None = 5,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """Return a strategy that exports each checkpoint as a SavedModel.

    Args:
      serving_input_fn: returns a ServingInputReceiver; None for a Keras model or a `trainerd.Job`.
      default_output_alternative_key: for estimators of contrib.learn alone.
      assets_extra: the path below assets.extra to the file that is copied there.
      as_text: whether the graph is written as text.
      exports_to_keep: how many of the newest are kept. None: all.
      strip_default_attrs: whether attributes of ops with their default value are left out.
    """

    def export_fn(
        estimator: Any, export_dir_base: Any, checkpoint_path: Any = None, strip_default_attrs: bool = False
    ) -> Any:
        found = export_of(export_dir_base, checkpoint_path)
        if found is None:
            found = _exported(estimator, export_dir_base, checkpoint_path, strip_default_attrs)
        keep_newest(Path(os.fsdecode(export_dir_base)), exports_to_keep)
        return found

    def _exported(estimator: Any, export_dir_base: Any, checkpoint_path: Any, strip_default_attrs: bool) -> Any:
        options: dict[str, Any] = {
            "assets_extra": assets_extra,
            "as_text": as_text,
            "checkpoint_path": checkpoint_path,
            "strip_default_attrs": strip_default_attrs,
        }
        if not isinstance(estimator, BaseEstimator):
            options["default_output_alternative_key"] = default_output_alternative_key
        elif default_output_alternative_key is not None:
            raise ValueError(
                "default_output_alternative_key is not supported in core Estimator. Given: "
                f"{default_output_alternative_key}"
            )
        return estimator.export_savedmodel(export_dir_base, serving_input_fn, **options)

    return ExportStrategy("Servo", export_fn, strip_default_attrs)


def make_parsing_export_strategy(
    feature_columns: Iterable[Any],
    default_output_alternative_key: str | None = None,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    exports_to_keep: int | None = 5,
    target_core: bool = True,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """Return a strategy of `make_export_strategy` that is fed with serialized `tf.train.Example`s.

    Args:
      feature_columns: the columns of `tf.feature_column` that are parsed.
      target_core: not used: there is one kind of serving input function.
      default_output_alternative_key, assets_extra, as_text, exports_to_keep, strip_default_attrs: see there.
    """
    spec = tf1.feature_column.make_parse_example_spec(list(feature_columns))
    return make_export_strategy(
        build_parsing_serving_input_receiver_fn(spec),
        default_output_alternative_key,
        assets_extra,
        as_text,
        exports_to_keep,
        strip_default_attrs,
    )


def _loss_smaller(curr_best_eval_result: Any, cand_eval_result: Any) -> bool:
    names = ("curr_best_eval_result", "cand_eval_result")
    return loss_is_smaller(curr_best_eval_result, cand_eval_result, names)


def make_best_model_export_strategy(
    serving_input_fn: Callable[[], Any] | None,
    exports_to_keep: int | None = 1,
    model_dir: str | None = None,
    event_file_pattern: str | None = None,
    compare_fn: Callable[[Any, Any], bool] | None = None,
    default_output_alternative_key: str | None = None,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """Return a strategy that exports a checkpoint that is better than all before it.

    What is best is kept beside the folder of its exports, in `export/NAME.json`.

    Args:
      compare_fn: called with the metrics of the best and of the current; whether the current is better. Default:
        whether its loss is smaller.
      model_dir, event_file_pattern: not used: the best is in a file of its own.
      serving_input_fn, exports_to_keep, default_output_alternative_key, strip_default_attrs: see
        `make_export_strategy`.
    """
    latest = make_export_strategy(
        serving_input_fn,
        default_output_alternative_key,
        exports_to_keep=exports_to_keep,
        strip_default_attrs=strip_default_attrs,
    )
    is_better = compare_fn or _loss_smaller

    def export_fn(estimator: Any, export_dir_base: Any, checkpoint_path: Any = None, eval_result: Any = None) -> Any:
        checkpoint_path = checkpoint_path or newest_checkpoint(estimator.model_dir)
        if not checkpoint_path:
            raise ValueError("Checkpoint path is empty.")
        if eval_result is None:
            raise ValueError(f"{checkpoint_path} has empty evaluation results.")
        folder = Path(os.fsdecode(export_dir_base))
        best = best_in(folder)
        if best is not None and not is_better(best, eval_result):
            return ""
        found = latest.export(estimator, export_dir_base, checkpoint_path)
        keep_best(folder, eval_result)
        return found

    return ExportStrategy("best_model", export_fn, strip_default_attrs)


def extend_export_strategy(
    base_export_strategy: ExportStrategy,
    post_export_fn: Callable[[Any, Any], Any],
    post_export_name: str | None = None,
) -> ExportStrategy:
    """Return a strategy that makes something else of what another one exports.

    Args:
      base_export_strategy: the other one; its exports are not kept.
      post_export_fn: called with the path of its export and a folder; returns the path of what it has made in that
        folder, which is put in place.
      post_export_name: the name of the new strategy. Default: that of the other.
    """

    def export_fn(estimator: Any, export_dir_base: Any, checkpoint_path: Any = None, eval_result: Any = None) -> Any:
        base = Path(os.fsdecode(export_dir_base))
        if (found := export_of(export_dir_base, checkpoint_path)) is not None:
            return found
        with storage(f"write an export in {base}"), staged(base / "export") as staging:
            exported = base_export_strategy.export(estimator, str(staging / "base"), checkpoint_path, eval_result)
            if not exported:
                return exported
            made = Path(os.fsdecode(post_export_fn(exported, str(staging / "post"))))
            if not made.is_relative_to(staging / "post"):
                raise ValueError(f"post_export_fn must return a sub-directory of {staging / 'post'}, and gave {made}.")
            target = base / made.relative_to(staging / "post")
            if target.exists():
                raise ValueError(f"{target} already exists: post_export_fn must give each export a name of its own.")
            if made.is_dir() and checkpoint_path:
                describe(made, os.fsdecode(checkpoint_path))
            put_in_place(made, target)
        return os.fsencode(target)

    return ExportStrategy(post_export_name or base_export_strategy.name, export_fn)
