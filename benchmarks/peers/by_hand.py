"""A resume by hand: import TensorFlow, build the digits job, read a checkpoint. `by_hand PREFIX`."""

from __future__ import annotations

import sys

import tensorflow as tf

from benchmarks.peers.contract import say
from trainerd.examples import digits


def main(prefix: str) -> None:
    """Read it, and say so."""
    job = digits.job()
    step = tf.Variable(0, dtype=tf.int64)
    assert job.dataset is not None
    checkpoint = tf.train.Checkpoint(**job.state, global_step=step, iterator=iter(job.dataset))
    checkpoint.read(prefix).assert_consumed()
    say(step=int(step.numpy()))


if __name__ == "__main__":
    main(sys.argv[1])
