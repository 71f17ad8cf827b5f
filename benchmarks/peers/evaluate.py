"""What a person writes to evaluate checkpoints of the digits job: a loop that restores and measures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

from trainerd.examples import digits


def main() -> None:
    """Evaluate every checkpoint of a run directory, and write the results into a file."""
    job = digits.job()
    checkpoint = tf.train.Checkpoint(**job.state)
    results = {}
    assert job.evaluate is not None
    for path in sorted(Path(sys.argv[1]).glob("model.ckpt-*.index")):
        checkpoint.read(str(path.with_suffix(""))).expect_partial()
        results[path.stem] = job.evaluate()
    Path(sys.argv[1], "by-hand.txt").write_text(json.dumps(results))
    print(json.dumps({"evaluated": len(results)}), flush=True)


if __name__ == "__main__":
    main()
