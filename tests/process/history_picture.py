"""Makes docs/images/history.png anew, from a real run of the digits: `python -m tests.process.history_picture`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.waiting import wait_for
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State, read_state

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "history.png"
PAUSED_AT = 2600
CONFIG = """\
entry = "jobs:valley"
logdir = "digits"
max_steps = 3600
[checkpoint]
save_model_secs = 0
save_model_steps = 500
[summary]
metrics_secs = 0
metrics_steps = 5
save_summaries_secs = 0
[evaluate]
evaluate_secs = 0
evaluate_steps = 400
"""


def main() -> None:
    """Train beyond the minimum, go back to it, train again with a pause, and draw what became of it."""
    with tempfile.TemporaryDirectory() as name:
        folder, rundir = Path(name), RunDirectory(Path(name, "digits"))
        os.environ["XDG_STATE_HOME"] = name
        shutil.copy(Path(__file__).with_name("jobs.py"), folder)
        (folder / "trainerd.toml").write_text(CONFIG)

        def trainerd(*arguments: str) -> None:
            subprocess.run([sys.executable, "-m", "trainerd", *arguments], cwd=folder, check=True)

        trainerd("run", "--max-steps", "2700")
        trainerd("rollback", "minimum")
        trainerd("start")
        wait_for(lambda: (read_state(rundir.state) or State()).step > PAUSED_AT, "steps", 300)
        trainerd("pause", "--wait")
        trainerd("run")
        trainerd("history", "--log", "--image", str(PICTURE))


if __name__ == "__main__":
    main()
