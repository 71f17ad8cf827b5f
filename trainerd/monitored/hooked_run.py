"""The fetches of a run and of its hooks, as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1


def require_disjoint(one: Mapping[Any, Any], other: Mapping[Any, Any], message: str) -> None:
    if both := set(one) & set(other):
        raise RuntimeError(f"{message} Conflict(s): {list(both)}")


def merge_options(options: Any, more: Any) -> Any:
    """RunOptions that do what both ask for."""
    merged = tf1.RunOptions()
    merged.CopyFrom(options)
    for name in ("trace_level", "timeout_in_ms", "inter_op_thread_pool", "output_partition_graphs"):
        setattr(merged, name, max(getattr(options, name), getattr(more, name)))
    merged.debug_options.debug_tensor_watch_opts.extend(more.debug_options.debug_tensor_watch_opts)
    merged.debug_options.reset_disk_byte_usage |= more.debug_options.reset_disk_byte_usage
    merged.report_tensor_allocations_upon_oom |= more.report_tensor_allocations_upon_oom
    return merged
