"""The fetches of a run and of its hooks, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainerd.sessions.tf1.session import ManagedSession

tf1 = tf.compat.v1

CALLER, STEP, LOSS = "caller", "step", "loss"  # names of what a run fetches, beside what each hook asks for


def run_with_hooks(
    session: Any, hooks: Sequence[Any], asked: dict[Any, Any], feeds: Any, options: Any, metadata: Any
) -> tuple[dict[Any, Any], bool]:
    """Run a session once with all hooks.

    Args:
      session: runs them.
      hooks: called in this order.
      asked: the fetches by name: those of the caller, and what is read beside them.
      feeds, options, metadata: see `tf.compat.v1.Session.run`.

    Returns:
      What was fetched, by the same names, and whether a hook wants to stop.

    Raises:
      RuntimeError: two hooks, or a hook and the caller, feed the same tensor.
    """
    run = session.run_step if isinstance(session, ManagedSession) else session.run
    if not hooks:
        return run(asked, feeds, options, metadata), False
    original = tf1.train.SessionRunArgs(asked[CALLER], feeds)
    context = tf1.train.SessionRunContext(original_args=original, session=session)
    feeds, options = _before(hooks, context, asked, feeds, options)
    if options is not None and metadata is None:
        metadata = tf1.RunMetadata()
    found = run(asked, feeds, options, metadata)
    options, metadata = options or tf1.RunOptions(), metadata or tf1.RunMetadata()
    for hook in hooks:
        values = tf1.train.SessionRunValues(results=found.get(hook), options=options, run_metadata=metadata)
        hook.after_run(context, values)
    return found, bool(context.stop_requested)


def _before(
    hooks: Sequence[Any], context: Any, asked: dict[Any, Any], feeds: Any, options: Any
) -> tuple[dict[Any, Any], Any]:
    """Ask every hook for its fetches and feeds."""
    of_hooks: dict[Any, Any] = {}
    for hook in hooks:
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
