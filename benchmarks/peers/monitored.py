"""`tf.compat.v1.train.MonitoredTrainingSession` with its own default hooks, as the tutorials write it."""

from __future__ import annotations

import tempfile

import tensorflow.compat.v1 as tf1

from benchmarks.peers.contract import serve, stepping
from benchmarks.peers.tiny_graph import build


def main() -> None:
    """Serve it."""
    step = build()
    with (
        tempfile.TemporaryDirectory() as folder,
        tf1.train.MonitoredTrainingSession(checkpoint_dir=folder) as session,
    ):
        serve(stepping(lambda: session.should_stop() or session.run(step)))


if __name__ == "__main__":
    main()
