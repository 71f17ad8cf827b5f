"""A resume by hand: import TensorFlow, build the digits job, read a checkpoint. `by_hand PREFIX`."""

from __future__ import annotations

import sys

import tensorflow as tf

from benchmarks.peers.contract import say
from trainerd.examples import digits
from trainerd.sessions.checkpoint import hidden_variables


def main(prefix: str) -> None:
    """Read it, and say so."""
    job = digits.job()
    step = tf.Variable(0, dtype=tf.int64)
    # What Keras hides from tf.train.Checkpoint (the seed of a dropout layer) is in the file, so it is read here too.
    parts = {**job.state, "hidden": hidden_variables(job.state), "global_step": step, "iterator": iter(job.dataset)}
    checkpoint = tf.train.Checkpoint(**parts)
    checkpoint.read(prefix).assert_consumed()
    say(step=int(step.numpy()))


if __name__ == "__main__":
    main(sys.argv[1])
