"""The job of many variables by hand: TensorFlow is imported, the variables are made, its step is called once."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.jobs import many_variables
from benchmarks.peers.contract import say


def main() -> None:
    """Call it, and say so."""
    step = tf.function(many_variables().train_step)
    say(loss=float(step()["loss"]))


if __name__ == "__main__":
    main()
