"""Warns of parts of a job that a resume cannot repeat, before it trains."""

from __future__ import annotations

import logging

from trainerd.errors import EntryError

log = logging.getLogger(__name__)


def warn_or_refuse(text: str, *, refuse: bool, event: str) -> None:
    """Warn that a resume will not be exact.

    Args:
      text: why, and what to write instead.
      refuse: whether that is an error: the run is to repeat exactly.
      event: what kind of warning it is, for the journal.

    Raises:
      EntryError: it is.
    """
    if refuse:
        raise EntryError(f"deterministic = true, and {text}")
    log.warning("%s", text, extra={"event": event})
