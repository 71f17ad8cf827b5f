"""Two workers that do the same steps in three ways, in turns: `python -m benchmarks.peers.workers RANK SECONDS ROUNDS`.

The step of a tiny Keras model with Adam: in trainerd's loop, where the workers agree on whether to go on; in the same
loop in the graph without that; and called from Python. TRAINERD_WORKERS names the workers. The chief answers with the
rates.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from trainerd.config.schema import ClusterConfig
from trainerd.workers.engine.engine import Engine
from trainerd.workers.plan import make_plan
from trainerd.workers.training.lockstep import PERIOD_SECS

BATCH = 32


def main() -> None:
    rank, seconds, rounds = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    plan = make_plan(ClusterConfig(), os.environ, rank)
    assert plan is not None
    engine = Engine(plan, ["CPU:0"], heartbeat_secs=20)

    import keras
    import tensorflow as tf

    from trainerd.sessions.tf2.replicas import Replicas
    from trainerd.sessions.tf2.while_loop import GraphLoop
    from trainerd.workers.training.replicated_loop import ReplicatedLoop

    keras.utils.set_random_seed(1)
    with engine.scope():
        layers = [keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        optimizer = keras.optimizers.Adam(0.001)
        optimizer.build(model.trainable_variables)
    iterator = iter(tf.data.Dataset.from_tensors(tf.random.normal((BATCH, 9))).repeat())

    def step(batch: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(batch[:, :8], training=True) - batch[:, 8:]) ** 2)
            part = loss / plan.size
        gradients = tape.gradient(part, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return {"loss": loss}

    replicated = tf.function(Replicas(engine.strategy, rank).replicated(step))
    traced = replicated.get_concrete_function(iterator.element_spec)
    with tf.device("CPU:0"):
        counts = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    ours = ReplicatedLoop(engine, traced, iterator, counts[0])
    bare = GraphLoop(traced, iterator, counts[1])

    def from_python(count: int) -> None:
        for _ in range(count):
            replicated(next(iterator))

    sides: dict[str, Callable[[int], Any]] = {"ours": ours.run, "bare": bare.run, "python": from_python}
    for run in sides.values():
        run(20)
    rate = 1 / timed(bare.run, 200)  # a first guess; all workers do as many steps
    per_side = {name: agreed(engine, int(seconds * rate / (8 if name == "python" else 1))) for name in sides}
    engine.period = agreed(engine, max(1, int(PERIOD_SECS * rate)))
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        took = {name: timed(sides[name], per_side[name]) for name in order}
        if rank == 0:
            print(json.dumps({name: 1 / each for name, each in took.items()}), flush=True)


def timed(run: Callable[[int], Any], count: int) -> float:
    """Seconds for one of so many steps."""
    begun = time.perf_counter()
    run(count)
    return (time.perf_counter() - begun) / count


def agreed(engine: Engine, count: int) -> int:
    """The mean over the workers: the same on all."""
    import tensorflow as tf

    total = tf.function(lambda: engine.sum(tf.constant(count, tf.int64)))()
    return max(1, int(total) // int(engine.strategy.num_replicas_in_sync))


if __name__ == "__main__":
    main()
