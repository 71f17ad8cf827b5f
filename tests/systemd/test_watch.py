"""The watcher as a service: what it tells of other services, and that it can do nothing but ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.systemd.conftest import NewService
from tests.systemd.machine import TRAINERD, Machine, wait_for
from tests.systemd.overlay import MachineError

UNIT = "trainerd-watch"
USER = "trainerd-watch"
MOST_EXPOSURE = 20  # tenths: 2.0, of 10.0
HEARD = "/run/heard"
PORT, PAGE = 8123, 9780
ENDPOINT = f"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open({HEARD!r}, "ab") as file:
            file.write(body.replace(b"\\n", b" ") + b"\\n")
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", {PORT}), Handler).serve_forever()
"""
# Presses a button of the page: NAME and WHAT are the arguments.
PRESS = f"""
import sys, urllib.request
url = "http://127.0.0.1:{PAGE}/run/" + "/".join(sys.argv[1:])
headers = {{"Content-Type": "application/json", "X-Trainerd": "1"}}
print(urllib.request.urlopen(urllib.request.Request(url, b"", headers, method="POST")).read().decode())
"""


@pytest.fixture(scope="module")
def watcher(machine: Machine) -> Iterator[Machine]:
    """A machine on which the watcher is installed, and an endpoint listens."""
    machine.run("ip", "link", "set", "lo", "up")
    machine.write("/run/endpoint.py", ENDPOINT)
    machine.run("systemd-run", "--unit=endpoint", "/usr/bin/python3", "/run/endpoint.py")
    said = machine.output(TRAINERD, "install", "--system", "--watch")
    assert f"systemctl enable --now {UNIT}.service" in said
    settings = f'[watch]\nchannels = ["json://127.0.0.1:{PORT}"]\n[page]\nlisten = "127.0.0.1:{PAGE}"\n'
    machine.write("/etc/trainerd/watch.toml", settings)
    machine.run("chmod", "600", "/etc/trainerd/watch.toml")
    yield machine
    machine.run("systemctl", "stop", UNIT, "endpoint", check=False)
    for path in ("trainerd.service.d", "trainerd@.service.d", f"{UNIT}.service"):
        machine.run("rm", "-r", f"/etc/systemd/system/{path}")
    machine.run("systemctl", "daemon-reload")


def heard(machine: Machine) -> list[dict[str, Any]]:
    """What has come to the endpoint."""
    text = machine.run("cat", HEARD, check=False).stdout
    return [json.loads(line) for line in text.splitlines()]


def as_watcher(machine: Machine, *command: str) -> int:
    """Run a command as the watcher, in its sandbox. Its exit code."""
    pid = machine.output("systemctl", "show", "--value", "--property=MainPID", UNIT)
    user = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    rights = [
        "--inh-caps=-all,+dac_read_search",
        "--ambient-caps=-all,+dac_read_search",
        "--bounding-set=-all,+dac_read_search",
    ]
    enter = ["nsenter", f"--target={pid}", "--mount", "--", "setpriv", *user, *rights]
    return machine.run(*enter, *command, check=False).returncode


def test_the_sandbox_of_the_watcher_is_tight(watcher: Machine) -> None:
    unit = f"/etc/systemd/system/{UNIT}.service"
    done = watcher.run("systemd-analyze", "verify", unit)
    assert done.stdout + done.stderr == ""
    watcher.run("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", unit)


def test_the_watcher_reports_a_service_and_can_only_ask_it(watcher: Machine, service: NewService) -> None:
    one = service()
    one.adjust(RestartSec="1s")
    one.systemctl("start")
    watcher.run("systemctl", "start", UNIT)
    one.wait_until_training()
    one.systemctl("kill", "--signal=KILL")
    name = one.folder.rpartition("/")[2]
    wait_for("the notice", lambda: [each for each in heard(watcher) if each["title"].startswith(f"{name}: was killed")])
    one.wait_until_training(restarts=1)

    inside = one.folder.replace("/lib/", "/lib/private/", 1)
    assert as_watcher(watcher, "cat", f"{inside}/state.json") == 0
    for path in (f"{inside}/pause", f"{inside}/set", f"{inside}/checkpoint", "/var/lib/private/mine", "/var/lib/mine"):
        assert as_watcher(watcher, "touch", path) != 0, path
    assert as_watcher(watcher, "sh", "-c", f"echo > {inside}/state.json") != 0
    assert "asked process" in watcher.output("/usr/bin/python3", "-c", PRESS, name, "save")
    wait_for("the save", lambda: one.checkpoints("request"))
    assert as_watcher(watcher, "touch", f"{inside}/requests/rollback") == 0
    assert "asked process" in watcher.output("/usr/bin/python3", "-c", PRESS, name, "pause")
    assert one.wait_until_over() == "inactive"
    wait_for("the pause", lambda: [each for each in heard(watcher) if each["title"].startswith(f"{name}: paused")])
    titles = [each["title"] for each in heard(watcher)]
    assert [title for title in titles if not title.startswith(f"{name}: ")] == []
    assert sum("was killed" in title for title in titles) == 1, titles
    watcher.run("systemctl", "stop", UNIT)
    with pytest.raises(MachineError):
        watcher.run("systemctl", "is-failed", UNIT)
