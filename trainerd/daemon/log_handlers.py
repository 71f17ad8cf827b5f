"""Handlers of log records: trainerd.log, the journal, the terminal."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

from logging_journald import JournaldTransport

from trainerd.daemon.tensorflow_import import beside_redirection
from trainerd.rundir.state import State
from trainerd.system.regular_files import open_to_append
from trainerd.text import printable

MAX_BYTES = 10_000_000


BACKUPS = 3


OURS = "trainerd"  # the logger above those of its modules


_FORMAT = "%(asctime)s %(levelname)-7s %(worker)s%(message)s"


_PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class Terminal(logging.StreamHandler[TextIO]):
    """Writes to a person's terminal, also while standard error is redirected for TensorFlow's own messages.

    Args:
      stream: standard error.
    """

    def __init__(self, stream: TextIO) -> None:
        own = beside_redirection(stream)
        if own is not stream:
            weakref.finalize(self, own.close)  # and not in `close`: a job's `logging.config` closes all handlers
        super().__init__(own)
        self.setFormatter(make_formatter())


class LogFile(RotatingFileHandler):
    """The log of the run directory. It rotates, and can take the process's output too.

    Args:
      path: the file; it is appended to.
      capture: whether standard output and standard error go to it, as for a daemon.
    """

    def __init__(self, path: Path, *, capture: bool) -> None:
        self._capture = capture
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8")
        self.setFormatter(make_formatter())
        self._redirect()

    def _open(self) -> TextIOWrapper:
        return os.fdopen(open_to_append(Path(self.baseFilename)), "a", encoding=self.encoding)

    def doRollover(self) -> None:
        """Start a new file, and send the process's output to it."""
        super().doRollover()
        self._redirect()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, into a new file if the old one was moved or removed, or into the old one if no new one can
        be made."""
        try:
            if self.stream is None or not self._is_at(self.stream):
                moved, self.stream = self.stream, self._open()
                self._redirect()
                if moved is not None:
                    moved.close()
        except OSError:
            if self.stream is None:
                self.handleError(record)
                return
        super().emit(record)

    def _is_at(self, stream: TextIOWrapper) -> bool:
        """Return whether the log's path still is this file."""
        try:
            return os.path.samestat(Path(self.baseFilename).stat(), os.fstat(stream.fileno()))
        except FileNotFoundError:
            return False

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing, so that the line is lost: a full disk must not fill the journal with tracebacks of logging."""

    def _redirect(self) -> None:
        if self._capture and self.stream is not None:
            for descriptor in (1, 2):
                os.dup2(self.stream.fileno(), descriptor)


class JournalHandler(logging.Handler):
    """Sends records to journald with PRIORITY and the fields STEP, PHASE, EVENT and LOGDIR."""

    def __init__(self) -> None:
        super().__init__()
        self._transport = JournaldTransport()
        self.setFormatter(_Printable())

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
        of_run = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        fields |= {name.upper(): printable(v) if isinstance(v, str) else v for name, v in of_run.items()}
        try:
            self._transport.send(fields.items())
        except OSError:
            self.handleError(record)


FIELDS = ("step", "phase", "event", "reason", "logdir", "rank")


class Others(logging.Handler):
    """Passes records of other libraries to the handlers that trainerd's own records go to."""

    def __init__(self, handlers: list[logging.Handler]) -> None:
        super().__init__()
        self._handlers = handlers

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        if record.name.partition(".")[0] != OURS:
            for handler in self._handlers:
                handler.handle(record)


class AddFields(logging.Filter):
    """Gives each record the step and the phase at which it was written, and the worker's rank if there are several.

    Args:
      state: gives the present state.
      rank: of this worker; None if it trains alone.
    """

    def __init__(self, state: Callable[[], State], rank: int | None = None) -> None:
        super().__init__()
        self._state = state
        self._rank = rank

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record lacks."""
        state = self._state()
        for name, value in (("step", state.step), ("phase", str(state.phase)), ("logdir", state.logdir)):
            if not hasattr(record, name):
                setattr(record, name, value)
        if self._rank is not None:
            record.rank, record.worker = self._rank, f"[{self._rank}] "
        return True


class _Printable(logging.Formatter):
    """Escapes control characters: a record may quote content of the run directory."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def make_formatter() -> logging.Formatter:
    formatter = _Printable(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%SZ", defaults={"worker": ""})
    formatter.converter = time.gmtime
    return formatter
