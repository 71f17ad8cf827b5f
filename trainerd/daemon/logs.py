"""Logs: one file in the run directory; the journal, with fields, under systemd; the terminal otherwise."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from logging_journald import check_journal_stream

from trainerd.daemon.log_handlers import OURS, AddFields, JournalHandler, LogFile, Others, Terminal
from trainerd.rundir.state import State
from trainerd.system.durable_files import storage
from trainerd.system.process_wide import process_wide

_hung = process_wide("log handlers", list[logging.Handler]())


def _terminal_handler() -> logging.Handler:
    if check_journal_stream():
        with contextlib.suppress(OSError):
            return JournalHandler()
    return Terminal(sys.stderr)


@contextlib.contextmanager
def logging_to(
    path: Path,
    *,
    level: str,
    state: Callable[[], State],
    capture: bool,
    terminal: logging.Handler | None = None,
    rank: int | None = None,
) -> Iterator[None]:
    """Log trainerd's records, and warnings of all others, while the block runs.

    Args:
      path: the log file.
      level: the least level that is logged.
      state: gives the fields STEP and PHASE.
      capture: whether the process is a daemon without a terminal, whose output goes to the file.
      terminal: the handler that shows records to a person. Default: the journal or standard error.
      rank: of this worker, which each line carries; None if it trains alone.

    Raises:
      StorageError: the file cannot be opened.
    """
    with storage(f"open the log {path}"):
        handlers: list[logging.Handler] = [LogFile(path, capture=capture)]
    if not capture:
        handlers.append(terminal or _terminal_handler())
    root, ours = logging.getLogger(), logging.getLogger(OURS)
    before = ours.level
    fields = AddFields(state, rank)
    for handler in handlers:
        handler.addFilter(fields)
    root.addHandler(others := Others(handlers))
    _hung.extend(handlers)
    restore_handlers()
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


@contextlib.contextmanager
def shown(level: str) -> Iterator[None]:
    """Show trainerd's records to a person, in the terminal or the journal, while the block runs.

    Args:
      level: the least level that is shown.
    """
    handler, ours = _terminal_handler(), logging.getLogger(OURS)
    ours.addHandler(handler)
    set_level(level)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        handler.close()


def restore_handlers() -> None:
    """Restore trainerd's logging, which a job that configures logging may have silenced.

    `logging.config` removes handlers and, by default, disables existing loggers. `logging.disable` holds for all
    loggers.
    """
    if logging.root.manager.disable:
        logging.disable(logging.NOTSET)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] == OURS and isinstance(logger, logging.Logger):
            logger.disabled = False
    ours = logging.getLogger(OURS)
    for handler in _hung:
        if handler not in ours.handlers:
            ours.addHandler(handler)
    for handler in logging.getLogger().handlers:
        if _hung and _is_printed(handler):
            handler.addFilter(_not_ours)  # which is done once: logging looks


def _not_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] != OURS


def _is_printed(handler: logging.Handler) -> bool:
    """Return whether a job's handler writes to the same place as one of trainerd's: each line would appear twice."""
    if type(handler) is not logging.StreamHandler:
        return False
    there = _place(handler)
    return there is not None and there in map(_place, _hung)


def _place(handler: logging.Handler) -> tuple[int, int] | None:
    """Return the file that a handler writes to. Default: that of standard error."""
    try:
        found = os.fstat(getattr(handler, "stream", sys.stderr).fileno())
    except (AttributeError, OSError, ValueError):  # it has none, or is closed
        return None
    return found.st_dev, found.st_ino


def set_level(level: str) -> None:
    """Set the least level that is logged."""
    logging.getLogger(OURS).setLevel(level.upper())
