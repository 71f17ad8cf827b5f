"""Make the pictures of docs/images anew: `python -m tools.recording [NAME ...]`. It makes and deletes /home/me."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tools.recording import cost, history, kill, scenes, watch

RECORDINGS: dict[str, Callable[[], None]] = {
    "kill": kill.kill,
    "run": scenes.run,
    "look": scenes.look,
    "history": history.history,
    "watch": watch.watch,
    "cost": cost.cost,
}


def main(names: list[str]) -> None:
    """Make these pictures, or all of them."""
    for name in names or RECORDINGS:
        RECORDINGS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
