"""The loop in the graph of several workers: they leave it after the same step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trainerd.sessions.tf2.while_loop import ROWS, GraphLoop, of_one_trace
from trainerd.workers.engine.engine import Engine


class ReplicatedLoop(GraphLoop):
    """Runs one traced step on all workers, in the graph.

    After every so many steps the workers sum up their reasons to stop: a raised flag, or a metric that is
    not a number. All see the same sum, and all have the same limit. So all end after the same step. A metric that is
    not a number ends it some steps later than on one machine, within the same period.

    Args:
      engine: has the workers do it together.
      traced, iterator, global_step, stops_at: see `GraphLoop`.
    """

    def __init__(
        self, engine: Engine, traced: Any, iterator: Any, global_step: tf.Variable, *, stops_at: Sequence[str] = ()
    ) -> None:
        self._engine = engine
        with tf.device("CPU:0"):
            self._objections = tf.Variable(0, dtype=tf.int64, trainable=False, name="objections")
            self._period = tf.Variable(1, dtype=tf.int64, trainable=False, name="period")
        super().__init__(traced, iterator, global_step, stops_at=stops_at)

    def set_raised(self, raised: bool) -> None:
        """Set the flag's value. Called by any thread, whenever it changes."""
        self._objections.assign(int(raised))

    @property
    def wants_boundary(self) -> bool:
        """True: the workers agree at each boundary on what follows."""
        return True

    def run(self, count: int) -> int | None:
        """Run so many steps, or fewer if a worker objects; see `GraphLoop.run`. All must give the same count."""
        self._period.assign(self._engine.period)
        self._limit.assign(min(count, ROWS))
        return int(self._run())

    def _make(self) -> Callable[[], Any]:
        @tf.function(autograph=False, input_signature=[])  # type: ignore[untyped-decorator]
        def run() -> tf.Tensor:
            limit, period = self._limit.read_value(), self._period.read_value()

            def some_steps(count: tf.Tensor, against: tf.Tensor) -> list[tf.Tensor]:
                end = tf.minimum(limit, count + period)
                count, bad = tf.while_loop(
                    lambda count, bad: count < end,
                    self._counted_step,
                    [count, tf.constant(0, tf.int64)],
                    parallel_iterations=1,
                )
                with tf.control_dependencies([count, bad]):
                    return [count, self._engine.sum(self._objections.read_value() + bad)]

            done, _ = tf.while_loop(
                lambda count, against: (count < limit) & (against < 1),
                some_steps,
                [tf.constant(0, tf.int64), tf.constant(0, tf.int64)],
                parallel_iterations=1,
            )
            return done

        return of_one_trace(run)

    def _counted_step(self, count: tf.Tensor, bad: tf.Tensor) -> list[tf.Tensor]:
        outputs = self._one_step(count)
        with tf.control_dependencies(tf.nest.flatten(outputs)):
            for value in self._checked(outputs):
                bad = tf.maximum(bad, tf.cast(tf.logical_not(tf.math.is_finite(value)), tf.int64))
            return [count + 1, bad]
