"""A watcher in a process of its own, and the endpoints that it tells."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.process.services import Service

SECRET = "tk_SoVerySecret"


class Endpoint:
    """A webhook on this machine, as Apprise's `json://` and a heartbeat use it.

    Attributes:
      heard: each notice, with when it came.
      beats: when each heartbeat came.
      hangs_secs: how long it lets each request wait.
      is_down: whether it answers with an error.
    """

    def __init__(self) -> None:
        self.heard: list[tuple[float, dict[str, Any]]] = []
        self.beats: list[float] = []
        self.hangs_secs = 0.0
        self.is_down = False
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(endpoint.hangs_secs)
                if not endpoint.is_down:
                    endpoint.heard.append((time.time(), body))
                self.send_response(503 if endpoint.is_down else 200)
                self.end_headers()

            def do_GET(self) -> None:
                endpoint.beats.append(time.time())
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Its host, port and path, which holds a secret."""
        return f"127.0.0.1:{self._server.server_address[1]}/{SECRET}"

    @property
    def titles(self) -> list[str]:
        """The titles of the notices, in the order in which they came."""
        return [body["title"] for _, body in self.heard]

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


def write_settings(path: Path, *channels: str, more: str = "", page: str = 'listen = ""\n') -> Path:
    """Write a watch.toml that only its owner may read."""
    path.write_text(f"[watch]\nchannels = {json.dumps(channels)}\n{more}\n[page]\n{page}", encoding="utf-8")
    path.chmod(0o600)
    return path


class Watcher(Service):
    """One process of `trainerd watch`.

    Args:
      settings: its watch.toml.
      output: the file that it prints to.
      state: the user's state folder.
    """

    def __init__(self, settings: Path, output: Path, state: Path) -> None:
        super().__init__(["watch", "--config", str(settings)], output, state)


Watch = Callable[..., Watcher]
