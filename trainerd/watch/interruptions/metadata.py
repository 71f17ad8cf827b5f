"""A client for the metadata service of a cloud: an HTTP server that only this machine reaches.

It takes no proxy, follows no redirect, and reads little: another process may answer in its place.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from typing import IO, Any

from trainerd.watch.interruptions.interruption import SourceError

MOST_BYTES = 64 * 1024  # of an answer
TIMEOUT_SECS = 5.0
_PART = 4096


@dataclass(frozen=True)
class MetadataAnswer:
    """One answer.

    Attributes:
      status: its status.
      body: its text.
      headers: its headers; a name has any case.
    """

    status: int
    body: str
    headers: Message


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A metadata service redirects nobody."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        """Follow none."""


class MetadataService:
    """The metadata service at an address.

    Args:
      url: its address, such as http://169.254.169.254.
      timer: seconds on a clock that is never set.
    """

    def __init__(self, url: str, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._url, self._timer = url.rstrip("/"), timer
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())

    def ask(
        self, path: str, headers: Mapping[str, str], *, method: str = "GET", timeout_secs: float = TIMEOUT_SECS
    ) -> MetadataAnswer:
        """Send one request.

        Returns:
          The answer. Any status is one.

        Raises:
          SourceError: there is no answer, or it is too large or too slow.
        """
        url = self._url + path
        request = urllib.request.Request(url, headers=dict(headers), method=method)
        deadline = self._timer() + timeout_secs
        try:
            try:
                response: Any = self._opener.open(request, timeout=timeout_secs)
            except urllib.error.HTTPError as error:
                response = error
            with response:
                body = self._read(response, url, deadline)
                return MetadataAnswer(response.status, body.decode(errors="replace"), response.headers)
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SourceError(f"{url} does not answer: {reason}") from error

    def _read(self, response: HTTPResponse, url: str, deadline: float) -> bytes:
        body = b""
        while part := response.read1(_PART):
            body += part
            if len(body) > MOST_BYTES:
                raise SourceError(f"{url} answers with more than {MOST_BYTES // 1024} KiB: no metadata service does")
            if self._timer() > deadline:
                raise SourceError(f"{url} takes too long to send its answer")
        return body


def require_status(answer: MetadataAnswer, path: str) -> None:
    """Require an answer of status 200.

    Raises:
      SourceError: it has another one.
    """
    if answer.status != 200:
        raise SourceError(f"the metadata service answers {path} with status {answer.status}")
