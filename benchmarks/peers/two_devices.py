"""Two devices: the job's step under the same strategy in a loop in the graph; and `fit`. `two_devices bare|fit`."""

from __future__ import annotations

import sys
import time
from typing import Any

import keras
import tensorflow as tf

from benchmarks import two_devices
from benchmarks.peers.contract import Measure, serve

FIRST_GUESS = 200


def bare(strategy: tf.distribute.Strategy) -> Measure:
    """Return the measurement of a loop in the graph that does nothing but the job's steps."""
    with strategy.scope():
        job = two_devices.job()
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

    return _guessing(lambda steps: _timed(lambda: run(tf.constant(steps))))


def fit(strategy: tf.distribute.Strategy) -> Measure:
    """Return the measurement of `fit`, which times the epoch alone."""
    with strategy.scope():
        model = two_devices.compiled()
    dataset = two_devices.batches()
    begun, seconds = [0.0], [0.0]

    def begin(epoch: int, logs: object) -> None:
        begun[0] = time.perf_counter()

    def end(epoch: int, logs: object) -> None:
        seconds[0] = time.perf_counter() - begun[0]

    watch = keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)

    def epoch(steps: int) -> float:
        model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=[watch])
        return seconds[0]

    return _guessing(epoch)


def _timed(call: Any) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _guessing(run: Any) -> Measure:
    """Return the measurement of something that is given its steps beforehand: the last rate says how many."""
    run(FIRST_GUESS)
    rate = FIRST_GUESS / run(FIRST_GUESS)

    def measure(seconds: float) -> tuple[int, float]:
        nonlocal rate
        steps = max(1, round(seconds * rate))
        taken = run(steps)
        rate = steps / taken
        return steps, taken

    return measure


if __name__ == "__main__":
    strategy = tf.distribute.MirroredStrategy(two_devices.DEVICES)
    serve({"bare": bare, "fit": fit}[sys.argv[1]](strategy))
