"""The process that sends what waits for one channel: it may hang, and Apprise is large.

It goes on if the watcher is killed, so that what a service has taken is noted. It is started with `python -m
trainerd.watch.delivery.sender CONFIG NUMBER FOLDER`: nothing that is secret is in its arguments.
"""

from __future__ import annotations

import fcntl
import signal
import sys
import time
from pathlib import Path

from trainerd.errors import TrainerdError
from trainerd.watch import settings
from trainerd.watch.delivery import channel
from trainerd.watch.delivery.notes import Notes
from trainerd.watch.delivery.notice import Notice

NOTICE_SECS = 120  # for one notice; a service that takes longer is tried again later


def main(arguments: list[str]) -> int:
    """Send all that waits. Returns the exit code."""
    config, number, folder = Path(arguments[0]), int(arguments[1]), Path(arguments[2])
    signal.signal(signal.SIGTERM, _end_after_this)
    try:
        url = settings.load(config).watch.channels[number]
        if folder.name == TEST:
            channel.deliver(url, _test_notice())
        else:
            _send(url, folder)
    except TrainerdError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


TEST = "-"  # in place of a folder: one notice is sent to try the channel
_ended: list[int] = []


def _end_after_this(number: int, frame: object) -> None:
    _ended.append(number)


def _test_notice() -> Notice:
    return Notice("test", "", "test", time.time(), "trainerd: a test", "This is how trainerd watch tells you of a run.")


def _send(url: str, folder: Path) -> None:
    """Send what waits, in order. One process at a time does: an earlier watcher's may still be at it."""
    name = channel.identity(url)
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        notes = Notes(folder, time.time())
        while not _ended and (found := notes.first(name)) is not None:
            number, notice = found
            signal.alarm(NOTICE_SECS)
            channel.deliver(url, notice)
            signal.alarm(0)
            notes.delivered(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
