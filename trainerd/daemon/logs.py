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

from trainerd.rundir.state import State
from trainerd.system.durable_files import storage
from trainerd.system.regular_files import open_to_append
from trainerd.text import printable

MAX_BYTES = 10_000_000
BACKUPS = 3
_OURS = "trainerd"  # the logger above those of its modules
_hung: list[logging.Handler] = []  # to the logger of trainerd
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

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, into a new file where the one so far was moved or removed; there where none can be made."""
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
        """Whether the log's name still leads to this file."""
        try:
            return os.path.samestat(Path(self.baseFilename).stat(), os.fstat(stream.fileno()))
        except FileNotFoundError:
            return False

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


FIELDS = ("step", "phase", "event", "reason", "logdir")


class _Others(logging.Handler):
    """What other libraries log, for the handlers that trainerd's own records have reached already."""

    def __init__(self, handlers: list[logging.Handler]) -> None:
        super().__init__()
        self._handlers = handlers

    def emit(self, record: logging.LogRecord) -> None:
        """Hand one record on."""
        if record.name.partition(".")[0] != _OURS:
            for handler in self._handlers:
                handler.handle(record)


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


class _Printable(logging.Formatter):
    """Shows no control characters: a record may quote what stands in the run directory."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _formatter() -> logging.Formatter:
    formatter = _Printable(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%SZ")
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
    root, ours = logging.getLogger(), logging.getLogger(_OURS)
    before = ours.level
    fields = AddFields(state)
    for handler in handlers:
        handler.addFilter(fields)
    root.addHandler(others := _Others(handlers))
    _hung.extend(handlers)
    be_heard()
    set_level(level)
    try:
        yield
    finally:
        root.removeHandler(others)
        for handler in handlers:
            _hung.remove(handler)
            ours.removeHandler(handler)
            handler.close()
        for handler in root.handlers:
            handler.removeFilter(_not_ours)
        ours.setLevel(before)


def follow(path: Path) -> None:
    """The log is there now: a new file is made there where it is rotated."""
    for handler in _hung:
        if isinstance(handler, LogFile):
            handler.baseFilename = str(path)


def be_heard() -> None:
    """See to it that trainerd's records are logged: a job that sets up logging of its own may have silenced them.

    `logging.config` takes away handlers, and disables all loggers that there were, unless it is told not to.
    `logging.disable` is for all there are.
    """
    if logging.root.manager.disable:
        logging.disable(logging.NOTSET)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] == _OURS and isinstance(logger, logging.Logger):
            logger.disabled = False
    ours = logging.getLogger(_OURS)
    for handler in _hung:
        if handler not in ours.handlers:
            ours.addHandler(handler)
    for handler in logging.getLogger().handlers:
        if _hung and _is_printed(handler):
            handler.addFilter(_not_ours)  # which is done once: logging looks


def _not_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] != _OURS


def _is_printed(handler: logging.Handler) -> bool:
    """Whether a job's handler writes where one of trainerd's does: each line would be there twice."""
    if type(handler) is not logging.StreamHandler:
        return False
    there = _place(handler)
    return there is not None and there in map(_place, _hung)


def _place(handler: logging.Handler) -> tuple[int, int] | None:
    """Which file a handler writes to: by default that of standard error."""
    try:
        found = os.fstat(getattr(handler, "stream", sys.stderr).fileno())
    except (AttributeError, OSError, ValueError):  # it has none, or is closed
        return None
    return found.st_dev, found.st_ino


def set_level(level: str) -> None:
    """Set the least level that is logged."""
    logging.getLogger(_OURS).setLevel(level.upper())
