"""A thread that calls a function every so often."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)


@contextlib.contextmanager
def called_every(seconds: float, function: Callable[[], None], *, name: str) -> Iterator[None]:
    """Call `function` every so many seconds, on a thread of its own, while the block runs."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(seconds):
            try:
                function()
            except Exception:
                log.exception("%s failed", name)

    thread = threading.Thread(target=run, name=f"trainerd-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
