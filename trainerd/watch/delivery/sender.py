"""The process that sends what waits for one channel: it may hang, and Apprise is large.

It continues if the watcher is killed, so that what a service has taken is noted. It is started with `python -m
trainerd.watch.delivery.sender CONFIG CHANNEL FOLDER`: a channel is named by its identity, since its URL is a secret.
"""

from __future__ import annotations

import fcntl
import signal
import sys
import time
from pathlib import Path

from trainerd.errors import ConfigError, TrainerdError
from trainerd.system.exit import end_now
from trainerd.system.process_wide import process_wide
from trainerd.watch import settings
from trainerd.watch.delivery import channel
from trainerd.watch.delivery.channel import UndeliveredError
from trainerd.watch.delivery.notes import Notes
from trainerd.watch.delivery.notice import Notice

NOTICE_SECS = 120  # for one notice; a service that takes longer is tried again later


def main(arguments: list[str]) -> int:
    """Send all that waits. Returns the exit code."""
    config, name, folder = Path(arguments[0]), arguments[1], Path(arguments[2])
    signal.signal(signal.SIGTERM, _end_after_this)
    signal.signal(signal.SIGALRM, _give_up)
    try:
        if folder.name == CHECK:
            channel.require_known(settings.load(config).watch.channels)
            return 0
        url = _url(config, name)
        if folder.name == TEST:
            channel.deliver(url, _test_notice())
        else:
            _send(url, name, folder)
    except TrainerdError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


# In place of a folder: one notice is sent to try the channel; or the URLs of all channels are checked.
TEST, CHECK = "-", "-check"
_ended = process_wide("end signals", list[int]())


def _end_after_this(number: int, frame: object) -> None:
    _ended.append(number)


def _give_up(number: int, frame: object) -> None:
    """End at once: Apprise would catch an error, and wait for its threads."""
    print(f"it took more than {NOTICE_SECS} s", file=sys.stderr, flush=True)
    end_now(UndeliveredError.exit_code)


def _url(config: Path, name: str) -> str:
    """Return the URL of a channel.

    Raises:
      ConfigError: the config cannot be read, or no longer has it.
    """
    for url in settings.load(config).watch.channels:
        if channel.identity(url) == name:
            return url
    raise ConfigError(f"{config} has changed, and no longer has this channel: restart the watcher.")


def _test_notice() -> Notice:
    body = "This is how trainerd watch notifies you of a run."
    return Notice("test", "", "test", time.time(), "trainerd: a test", body)


def _send(url: str, name: str, folder: Path) -> None:
    """Send what waits, in order. One process at a time does: an earlier watcher's may still be at it."""
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
