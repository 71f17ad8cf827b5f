"""`tf.compat.v1.train.Supervisor` with its own default services, as the tutorials write it."""

from __future__ import annotations

import tempfile

import tensorflow.compat.v1 as tf1

from benchmarks.peers.contract import serve, stepping
from benchmarks.peers.tiny_graph import build


def main() -> None:
    """Serve it."""
    step = build()
    with tempfile.TemporaryDirectory() as folder:
        supervisor = tf1.train.Supervisor(logdir=folder)
        with supervisor.managed_session() as session:
            serve(stepping(lambda: supervisor.should_stop() or session.run(step)))


if __name__ == "__main__":
    main()
