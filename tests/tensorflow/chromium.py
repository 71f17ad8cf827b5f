"""A headless Chromium, driven through chromedriver with the WebDriver protocol: JSON over HTTP, nothing to install."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.waiting import wait_for

Found = TypeVar("Found")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)

# Loopback only: a proxy that the environment names has no part in it.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(url: str, data: Any = None, *, method: str | None = None, timeout: float = 60) -> bytes:
    """What a URL of this machine answers; `data` is sent as JSON."""
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    with _opener.open(request, timeout=timeout) as answer:
        content: bytes = answer.read()
    return content


def poll(look: Callable[[], Found], what: str, seconds: float = 60) -> Found:
    """Look again and again until there is something; a machine under load takes its time."""
    return wait_for(lambda: look() or None, what, seconds)


def end_group(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a session of its own, and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Page:
    """The one tab of a browser."""

    def __init__(self, session_url: str) -> None:
        self._url = session_url

    def open(self, url: str) -> None:
        """Go to a page."""
        fetch(f"{self._url}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript as the body of a function, and give what it returns."""
        answer = fetch(f"{self._url}/execute/sync", {"script": script, "args": list(arguments)})
        return json.loads(answer)["value"]

    def resize(self, width: int, height: int) -> None:
        """Give the page itself this size, whatever the window's frame takes."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        fetch(f"{self._url}/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    def prefer(self, scheme: str) -> None:
        """Have the person prefer "light" or "dark" pages."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        fetch(f"{self._url}/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": media})

    def screenshot(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode(json.loads(fetch(f"{self._url}/screenshot"))["value"])


@contextlib.contextmanager
def browser(folder: Path, *, width: int = 1400, height: int = 900) -> Iterator[Page]:
    """Start Chromium, with a new profile under `folder`, and end it."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        needed = "looks at the real page in a browser: install the packages `chromium` and `chromium-driver`"
        assert not os.environ.get("CI"), needed
        pytest.skip(needed)
    output, profile = folder / "chromedriver.log", folder / "profile"
    with output.open("wb") as log:
        process = subprocess.Popen([driver, "--port=0"], stdout=log, stderr=log, start_new_session=True)
    try:
        port = poll(lambda: _port(output), "chromedriver")
        flags = [*FLAGS, f"--user-data-dir={profile}"]
        options = {"goog:chromeOptions": {"binary": chromium, "args": flags}}
        with_options = {"capabilities": {"alwaysMatch": options}}
        server = f"http://127.0.0.1:{port}/session"
        session = f"{server}/{json.loads(fetch(server, with_options))['value']['sessionId']}"
        try:
            page = Page(session)
            page.resize(width, height)
            yield page
        finally:
            with contextlib.suppress(urllib.error.URLError):
                fetch(session, method="DELETE")
    finally:
        end_group(process)


def _port(output: Path) -> int | None:
    """chromedriver says: "ChromeDriver was started successfully on port 41035."."""
    found = output.read_text().partition("successfully on port ")[2].partition(".")
    return int(found[0]) if found[1] else None
