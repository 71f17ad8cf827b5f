"""The fetches of a run and of its hooks, as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from trainerd.sessions.tf1.session import ManagedSession

tf1 = tf.compat.v1


class HookedFound(NamedTuple):
    """The result of one run with hooks.

    It has the caller's fetches, the global step and the loss (None if none is known), and whether a hook wants to stop.
    """

    result: Any
    step: int | None
    stop_requested: bool
    loss: float | None = None


class HookedRun:
    """Runs a session once with all hooks.

    Args:
      hooks: called in this order.
      global_step: fetched with each run; None if there is none.
      loss: a tensor with one number that is fetched with each run; None if none is.

    Raises:
      RuntimeError: two hooks, or a hook and the caller, feed the same tensor.
    """

    def __init__(self, hooks: list[Any], global_step: Any, loss: Any = None) -> None:
        self._hooks = hooks
        self._global_step = global_step
        self._loss = loss

    def __call__(self, session: Any, fetches: Any, feeds: Any, options: Any, metadata: Any) -> HookedFound:
        """Run once."""
        asked: dict[Any, Any] = {"caller": fetches}
        if self._global_step is not None:
            asked["step"] = self._global_step
        if self._loss is not None:
            asked["loss"] = self._loss
        run = session.run_step if isinstance(session, ManagedSession) else session.run
        if not self._hooks:
            found = run(asked, feeds, options, metadata)
            return HookedFound(found["caller"], found.get("step"), False, found.get("loss"))
        context = tf1.train.SessionRunContext(original_args=tf1.train.SessionRunArgs(fetches, feeds), session=session)
        feeds, options = self._before(context, asked, feeds, options)
        if options is not None and metadata is None:
            metadata = tf1.RunMetadata()
        found = run(asked, feeds, options, metadata)
        options, metadata = options or tf1.RunOptions(), metadata or tf1.RunMetadata()
        for hook in self._hooks:
            values = tf1.train.SessionRunValues(results=found.get(hook), options=options, run_metadata=metadata)
            hook.after_run(context, values)
        return HookedFound(found["caller"], found.get("step"), bool(context.stop_requested), found.get("loss"))

    def _before(self, context: Any, asked: dict[Any, Any], feeds: Any, options: Any) -> tuple[Any, Any]:
        """Ask every hook for its fetches and feeds."""
        of_hooks: dict[Any, Any] = {}
        for hook in self._hooks:
            request = hook.before_run(context)
            if request is None:
                continue
            if request.fetches is not None:
                asked[hook] = request.fetches
            if request.feed_dict:
                _require_disjoint(of_hooks, request.feed_dict, "Same tensor is fed by two hooks.")
                of_hooks.update(request.feed_dict)
            if request.options:
                options = _merge_options(options or tf1.RunOptions(), request.options)
        if of_hooks and feeds:
            _require_disjoint(feeds, of_hooks, "Same tensor is fed by a SessionRunHook and user.")
        return {**of_hooks, **(feeds or {})}, options


def _require_disjoint(one: Mapping[Any, Any], other: Mapping[Any, Any], message: str) -> None:
    if both := set(one) & set(other):
        raise RuntimeError(f"{message} Conflict(s): {list(both)}")


def _merge_options(options: Any, more: Any) -> Any:
    """Return RunOptions that do what both ask for."""
    merged = tf1.RunOptions()
    merged.CopyFrom(options)
    for name in ("trace_level", "timeout_in_ms", "inter_op_thread_pool", "output_partition_graphs"):
        setattr(merged, name, max(getattr(options, name), getattr(more, name)))
    merged.debug_options.debug_tensor_watch_opts.extend(more.debug_options.debug_tensor_watch_opts)
    merged.debug_options.reset_disk_byte_usage |= more.debug_options.reset_disk_byte_usage
    merged.report_tensor_allocations_upon_oom |= more.report_tensor_allocations_upon_oom
    return merged
