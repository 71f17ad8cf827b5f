"""Two devices: the job's step under the same strategy in a loop in the graph; and `fit`. `two_devices bare|fit`."""

from __future__ import annotations

import sys
import time
from typing import Any

import tensorflow as tf

from benchmarks import two_devices
from benchmarks.peers.contract import Measure, guessing, serve
from benchmarks.peers.keras_fit import Stopwatch

FIRST_GUESS = 200


def bare(strategy: tf.distribute.Strategy) -> Measure:
    """Return the measurement of a loop in the graph that does nothing but the job's steps."""
    with strategy.scope():
        job = two_devices.job()
    assert job.dataset is not None
    iterator: Any = iter(job.dataset)

    def part_of(whole: tf.Tensor) -> Any:
        parts = tf.split(whole, len(two_devices.DEVICES))
        return strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    @tf.function  # type: ignore[untyped-decorator]
    def run(steps: tf.Tensor) -> tf.Tensor:
        def one(done: tf.Tensor) -> list[tf.Tensor]:
            parts = tf.nest.map_structure(part_of, iterator.get_next())
            losses = strategy.experimental_local_results(strategy.run(job.train_step, args=(parts,))["loss"])
            with tf.control_dependencies(losses):
                return [done + 1]

        [done] = tf.while_loop(lambda done: done < steps, one, [tf.constant(0)], parallel_iterations=1)
        return done

    def timed(steps: int) -> float:
        begun = time.perf_counter()
        run(tf.constant(steps))
        return time.perf_counter() - begun

    return guessing(timed, FIRST_GUESS)


def fit(strategy: tf.distribute.Strategy) -> Measure:
    """Return the measurement of `fit`, which times the epoch alone."""
    with strategy.scope():
        model = two_devices.compiled()
    dataset = two_devices.batches()
    watch = Stopwatch()

    def epoch(steps: int) -> float:
        model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=[watch])
        return watch.seconds

    return guessing(epoch, FIRST_GUESS)


if __name__ == "__main__":
    strategy = tf.distribute.MirroredStrategy(two_devices.DEVICES)
    serve({"bare": bare, "fit": fit}[sys.argv[1]](strategy))
