"""`trainerd install` and the units that it writes, on a machine that takes them seriously."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.systemd.conftest import NewService
from tests.systemd.machine import TRAINERD, Machine, wait_for
from tests.systemd.overlay import PREFIX
from tests.systemd.service import COUNTER, Service

UNITS = Path("/etc/systemd/system")
SHIPPED = PREFIX / "share" / "trainerd" / "systemd"
MOST_EXPOSURE = 10  # tenths: 1.0, of 10.0


@pytest.fixture
def installed(machine: Machine) -> list[Path]:
    """Every unit there is: as it ships, and as it is installed."""
    for name in (None, "some"):
        one = Service(machine, name)
        one.configure()
        one.install()
    return [folder / name for folder in (SHIPPED, UNITS) for name in ("trainerd.service", "trainerd@.service")]


def test_systemd_understands_every_line(machine: Machine, installed: list[Path]) -> None:
    """What it does not understand it ignores, and says so on standard error only."""
    for unit in installed:
        done = machine.run("systemd-analyze", "verify", unit)
        assert done.stdout + done.stderr == "", unit


def test_the_sandbox_is_tight(machine: Machine, installed: list[Path]) -> None:
    """No more than 1.0 of 10 in systemd's own reckoning."""
    for unit in installed:
        machine.run("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", unit)


def test_the_sandbox_holds(service: NewService) -> None:
    """A job sees no home, writes nowhere but in its own directories, and has no network."""
    one = service("probe:job")
    one.machine.write("/etc/trainerd/probe.py", PROBE)
    one.systemctl("start")
    lines = "\n".join(line["MESSAGE"] for line in one.journal())
    for what in ("home hidden", "etc read-only", "no network", "writes ~", "unprivileged"):
        assert f"probe: {what}" in lines


def test_installing_twice_changes_nothing(machine: Machine) -> None:
    """And says so."""
    one = Service(machine)
    one.configure()
    one.install()
    assert f"{UNITS}/trainerd.service is as it should be already" in one.install()


def test_a_user_without_rights_is_shown_what_to_do(machine: Machine) -> None:
    """Exit code 64, one line, no traceback."""
    done = machine.run("setpriv", "--reuid=65534", "--clear-groups", TRAINERD, "install", "--system", check=False)
    assert done.returncode == 64
    assert "needs root" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_user_trains_without_root(machine: Machine) -> None:
    """`trainerd install --user`, and the user's own service manager."""
    machine.run("useradd", "--create-home", "alice")
    uid = machine.output("id", "--user", "alice")
    home = "/home/alice/a run"
    machine.write(f"{home}/trainerd.toml", f'entry = "{COUNTER}"\nlogdir = "run"\n')
    machine.run("chown", "-R", "alice:", home)
    machine.run("systemctl", "start", f"user@{uid}")

    def alice(*command: str | Path) -> str:
        environment = {"XDG_RUNTIME_DIR": f"/run/user/{uid}", "HOME": "/home/alice"}
        words = ["runuser", "--user", "alice", "--", "env", f"--chdir={home}", *map(str, command)]
        return machine.run(*words, environment=environment).stdout.strip()

    said = alice(TRAINERD, "install")
    assert "/home/alice/.config/systemd/user/trainerd.service" in said
    alice("systemd-analyze", "--user", "verify", "/home/alice/.config/systemd/user/trainerd.service")
    alice("systemctl", "--user", "start", "trainerd")
    wait_for("a step", lambda: "training" in alice(TRAINERD, "status"), seconds=5)
    alice("systemctl", "--user", "stop", "trainerd")
    assert alice("systemctl", "--user", "show", "--value", "--property=Result", "trainerd") == "success"
    assert "paused" in alice(TRAINERD, "status")


PROBE = """
import os, socket
from pathlib import Path

from trainerd.examples.counter import job as counter


def job():
    def say(what, holds):
        print("probe:", what if holds else "NOT " + what)

    def raises(function):
        try:
            function()
        except OSError:
            return True
        return False

    say("home hidden", not os.path.exists("/home/.") or os.listdir("/home") == [])
    say("etc read-only", raises(lambda: Path("/etc/trainerd/x").touch()))
    say("no network", raises(lambda: socket.socket(socket.AF_INET)))
    (Path.home() / "x").touch()
    say("writes ~", (Path.home() / "x").exists())
    say("unprivileged", os.getuid() > 1000)
    return counter()
"""
