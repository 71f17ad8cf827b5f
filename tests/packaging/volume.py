"""A folder that is mounted into a container, and the digits' run in it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.packaging.bootstrap import USER
from tests.waiting import wait_for

SECONDS = 300.0  # how long anything may take


class Volume:
    """Such a folder, which belongs to the image's user.

    Args:
      path: where; it must not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        os.chown(path, USER, USER)
        self.run = path / "digits"

    def state(self) -> dict[str, Any]:
        """What the run says of itself."""
        try:
            state: dict[str, Any] = json.loads((self.run / "state.json").read_text())
        except FileNotFoundError:
            return {"phase": None, "step": -1}
        return state

    def until_trained(self, after: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until a process has trained steps after this one."""

        def has_trained() -> bool:
            assert process.poll() is None, f"it ended with {process.returncode}"
            state = self.state()
            return bool(state["phase"] == "training" and state["step"] > after)

        wait_for(has_trained, lambda: f"a step after {after}: {self.state()}", SECONDS)

    def resumed_at(self) -> list[int]:
        """The steps that starts went on from."""
        events = [json.loads(line) for line in (self.run / "run-events.jsonl").read_text().splitlines() if line]
        return [event["step"] for event in events if event["kind"] == "resume"]
