"""The metadata services of AWS, Google and Azure, on a port of this machine."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_LONGEST_WAIT_SECS = 60.0


class MetadataServer:
    """One server for all clouds. What a test sets is answered from then on.

    Attributes:
      url: its address.
      asked: the method and the path of each request.
      said: the body of each answer.
      answer: called with a request in place of the services; None for them. It returns a status, headers and a body.
      token: the token of AWS that is valid.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.said: list[bytes] = []
        self.answer: Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes]] | None = None
        self.token = "token-1"
        self._action: bytes | None = None
        self._events: list[object] = []
        self._changed = threading.Condition()
        self._is_preempted = self._is_closed = False
        self._version = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(f"{self.command} {self.path}")
                status, headers, body = (server.answer or server.serve)(self)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # who has asked is gone
                    self.wfile.write(body)
                server.said.append(body)

            do_PUT = do_GET

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def interrupt(self, action: str = "terminate", at: str = "2026-11-28T12:02:00Z") -> None:
        """Announce an interruption of AWS."""
        self._action = json.dumps({"action": action, "time": at}).encode()

    def preempt(self, is_preempted: bool = True) -> None:
        """Announce a preemption of Google, or say that there is none."""
        with self._changed:
            self._is_preempted = is_preempted
            self._version += 1
            self._changed.notify_all()

    def schedule(self, *events: object) -> None:
        """Announce these events of Azure, for the machine `vm-1`."""
        self._events = list(events)

    def close(self) -> None:
        """End it."""
        self._is_closed = True
        self.preempt()
        self._server.shutdown()
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        """Answer as the services do."""
        path, headers = urlsplit(request.path).path, request.headers
        match path:
            case "/latest/api/token":
                is_known = request.command == "PUT" and "X-aws-ec2-metadata-token-ttl-seconds" in headers
                return (200, {}, self.token.encode()) if is_known else (400, {}, b"")
            case "/latest/meta-data/spot/instance-action":
                if headers.get("X-aws-ec2-metadata-token") != self.token:
                    return 401, {}, b""
                return (404, {}, b"Not Found") if self._action is None else (200, {}, self._action)
            case "/computeMetadata/v1/instance/preempted" if headers.get("Metadata-Flavor") == "Google":
                query = parse_qs(urlsplit(request.path).query)
                with self._changed:
                    if query.get("wait_for_change") == ["true"]:
                        last = query.get("last_etag")
                        self._changed.wait_for(lambda: self._is_closed or last != [self._etag], _LONGEST_WAIT_SECS)
                    word = b"TRUE" if self._is_preempted else b"FALSE"
                    return 200, {"Metadata-Flavor": "Google", "ETag": self._etag}, word
            case "/metadata/instance/compute/name" if headers.get("Metadata") == "true":
                return 200, {}, b"vm-1"
            case "/metadata/scheduledevents" if headers.get("Metadata") == "true":
                return 200, {}, json.dumps({"DocumentIncarnation": 1, "Events": self._events}).encode()
        return 404, {}, b""

    @property
    def _etag(self) -> str:
        return f"etag-{self._version}"
