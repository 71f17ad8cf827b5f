"""Who may look, and who may ask: what keeps other machines and other sites out."""

from __future__ import annotations

import hashlib
import hmac
import socket
import urllib.parse

from werkzeug.exceptions import Forbidden, MisdirectedRequest, Unauthorized, UnsupportedMediaType
from werkzeug.wrappers import Request

from trainerd.errors import ConfigError
from trainerd.watch.page.listen import ListenAddress, ip_of, is_loopback

COOKIE = "trainerd"
HEADER = "X-Trainerd"  # no page of another site can send it: a browser asks first, and gets no permission


class RequestGuard:
    """Checks each request before anything is done.

    Args:
      address: where the page listens.
      token: what a person or Prometheus must show; None for none.

    Raises:
      ConfigError: others can reach this address, and there is no token.
    """

    def __init__(self, address: ListenAddress, token: str | None) -> None:
        if token is None and not address.is_of_this_machine_only:
            raise ConfigError(
                f"{address} can be reached from other machines, and whoever reaches it could pause every run: give a "
                "token, or listen on 127.0.0.1 or a unix socket and let ssh or a proxy lead there."
            )
        self._address = address
        self._token = token

    def require_known_host(self, request: Request) -> None:
        """Refuse a name that is not this machine's: another site may point its name to this machine (DNS rebinding)."""
        host = _split(f"//{request.host}").hostname or ""
        if not self._is_known(host):
            raise MisdirectedRequest(
                f"this is not {host!r}. Use localhost, or the address that the watcher listens on."
            )

    def _is_known(self, host: str) -> bool:
        if is_loopback(host) or host == self._address.host.lower():
            return True
        if self._address.is_of_this_machine_only:
            return False
        own = socket.gethostname().lower().partition(".")[0]
        listens = ip_of(self._address.host)
        is_every_address = listens is not None and listens.is_unspecified
        return host.partition(".")[0] == own or (is_every_address and ip_of(host) is not None)

    def require_token(self, request: Request) -> None:
        """Refuse a request that does not show the token."""
        if self._token is None:
            return
        given = request.authorization
        is_shown = given is not None and given.type == "bearer" and self.is_token(given.token or "")
        if not is_shown and not _is_equal(request.cookies.get(COOKIE, ""), self.cookie()):
            raise Unauthorized("show the token: Authorization: Bearer …, or by the form of the page.")

    def is_token(self, given: str) -> bool:
        """Return whether it is the token."""
        return self._token is not None and _is_equal(given, self._token)

    def cookie(self) -> str:
        """Return the cookie that a browser shows in place of the token, once a person has given the token."""
        return hmac.new((self._token or "").encode(), b"the cookie of the page", hashlib.sha256).hexdigest()

    def require_asked(self, request: Request) -> None:
        """Refuse a request to change something that no script of this page, and no program, has sent."""
        if not _is_same_site(request):
            raise Forbidden("this came from another site.")
        if request.mimetype != "application/json":
            raise UnsupportedMediaType("send Content-Type: application/json.")
        if HEADER not in request.headers:
            raise Forbidden(f"send the header {HEADER}: 1. A page of another site cannot.")


def _is_same_site(request: Request) -> bool:
    """Return whether a request comes from this site, by what a browser says.

    It says the first only to https and to this machine, and a program says neither.
    """
    if (said := request.headers.get("Sec-Fetch-Site")) is not None:
        return said in ("same-origin", "none")
    origin = request.headers.get("Origin")
    return origin is None or (_split(origin).netloc or None) == request.host


def _split(url: str) -> urllib.parse.SplitResult:
    """Return the parts of a URL that anybody may have sent; all empty if it is none."""
    try:
        return urllib.parse.urlsplit(url)
    except ValueError:
        return urllib.parse.SplitResult("", "", "", "", "")


def _is_equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())
