"""The heartbeat: a URL that is fetched while the watcher is well, for a service that alerts when that ends."""

from __future__ import annotations

import http.client
import logging
import urllib.error
import urllib.request
from collections.abc import Callable

log = logging.getLogger(__name__)

_TIMEOUT_SECS = 10.0


class Heartbeat:
    """Fetches a URL.

    Args:
      url: the URL; it is a secret, and is in no message.
      is_well: whether there is anything to fetch it for.
    """

    def __init__(self, url: str, is_well: Callable[[], bool]) -> None:
        self._url, self._is_well = url, is_well
        self._fails = False

    def beat(self) -> None:
        """Fetch it once, if all is well. A failure is logged once, until it works again."""
        if not self._is_well():
            return
        try:
            with urllib.request.urlopen(self._url, timeout=_TIMEOUT_SECS) as answer:
                answer.read(1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not self._fails:
                log.warning("the URL of the heartbeat cannot be fetched: %s", _why(error), extra={"event": "heartbeat"})
            self._fails = True
            return
        if self._fails:
            log.info("the heartbeat works again", extra={"event": "heartbeat"})
        self._fails = False


def _why(error: Exception) -> str:
    """Return what went wrong, without the URL."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the service answers with {error.code}"
    reason = getattr(error, "reason", error)
    return getattr(reason, "strerror", None) or type(reason).__name__
