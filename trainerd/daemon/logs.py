"""Logs: one file in the run directory; the journal, with fields, under systemd; the terminal otherwise."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from logging_journald import JournaldTransport, check_journal_stream

from trainerd.files import open_to_append, storage
from trainerd.state import State

MAX_BYTES = 10_000_000
BACKUPS = 3
_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"
_PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class LogFile(RotatingFileHandler):
    """The log of the run directory. Keeps itself small, and can carry what the process prints too.

    Args:
      path: the file; it is appended to.
      capture: whether standard output and standard error go to it, as those of a daemon.
    """

    def __init__(self, path: Path, *, capture: bool) -> None:
        self._capture = capture
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8")
        self.setFormatter(_formatter())
        self._redirect()

    def _open(self) -> TextIOWrapper:
        return os.fdopen(open_to_append(Path(self.baseFilename)), "a", encoding=self.encoding)

    def doRollover(self) -> None:
        """Start a new file, and have what is printed follow."""
        super().doRollover()
        self._redirect()

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk must not fill the journal with tracebacks of logging; the line is lost."""

    def _redirect(self) -> None:
        if self._capture and self.stream is not None:
            for descriptor in (1, 2):
                os.dup2(self.stream.fileno(), descriptor)


class JournalHandler(logging.Handler):
    """Sends records to journald with PRIORITY and the fields STEP, PHASE, EVENT and LOGDIR."""

    def __init__(self) -> None:
        super().__init__()
        self._transport = JournaldTransport()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        fields = {
            "MESSAGE": self.format(record),
            "PRIORITY": _PRIORITY.get(record.levelno, 6),
            "SYSLOG_IDENTIFIER": "trainerd",
            "CODE_FILE": record.pathname,
            "CODE_LINE": record.lineno,
            "CODE_FUNC": record.funcName,
            "LOGGER": record.name,
        }
        fields |= {name.upper(): getattr(record, name) for name in FIELDS if hasattr(record, name)}
        try:
            self._transport.send(fields.items())
        except OSError:
            self.handleError(record)


FIELDS = ("step", "phase", "event", "reason", "logdir")


class AddFields(logging.Filter):
    """Gives each record the step and the phase at which it was written."""

    def __init__(self, state: Callable[[], State]) -> None:
        super().__init__()
        self._state = state

    def filter(self, record: logging.LogRecord) -> bool:
        """Add what the record does not say itself."""
        state = self._state()
        for name, value in (("step", state.step), ("phase", str(state.phase)), ("logdir", state.logdir)):
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def _formatter() -> logging.Formatter:
    formatter = logging.Formatter(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    return formatter


def _terminal_handler() -> logging.Handler:
    if check_journal_stream():
        with contextlib.suppress(OSError):
            return JournalHandler()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter())
    return handler


@contextlib.contextmanager
def logging_to(
    path: Path,
    *,
    level: str,
    state: Callable[[], State],
    capture: bool,
    terminal: logging.Handler | None = None,
) -> Iterator[None]:
    """Send the logs of trainerd, and warnings of all others, where they belong while the block runs.

    Args:
      path: the log file.
      level: the least level that is logged.
      state: what the fields STEP and PHASE are taken from.
      capture: whether the process is a daemon without a terminal: what it prints goes to the file.
      terminal: what shows records to a person; by default the journal or standard error.

    Raises:
      StorageError: the file cannot be opened.
    """
    with storage(f"open the log {path}"):
        handlers: list[logging.Handler] = [LogFile(path, capture=capture)]
    if not capture:
        handlers.append(terminal or _terminal_handler())
    root, ours = logging.getLogger(), logging.getLogger("trainerd")
    before = (ours.level, ours.propagate)
    fields = AddFields(state)
    for handler in handlers:
        handler.addFilter(fields)
        root.addHandler(handler)
    set_level(level)
    try:
        yield
    finally:
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
        ours.setLevel(before[0])


def set_level(level: str) -> None:
    """Set the least level that is logged."""
    logging.getLogger("trainerd").setLevel(level.upper())
