"""The systemd part of the Keras tutorial, typed as a user types it, across a reboot."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.systemd import machine as machines
from tests.systemd.machine import Machine, wait_for
from tests.systemd.overlay import CHECKOUT, PREFIX

PAGE = (CHECKOUT / "docs" / "tutorials" / "keras-script.md").read_text(encoding="utf-8")
FOLDER = "/home/alice/train"


@pytest.fixture
def booted() -> Iterator[Machine]:
    """A machine of the test's own, which it reboots."""
    with machines.machine("tutorial") as machine:
        yield machine


def block(start: str) -> str:
    """The text of the page's block that has a line that starts so."""
    found = [match[1] for match in re.finditer(r"^```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
    [text] = [each for each in found if re.search(rf"^{re.escape(start)}", each, re.MULTILINE)]
    return text


def test_a_keras_script_survives_a_reboot_without_a_login(booted: Machine) -> None:
    booted.run("useradd", "--create-home", "--shell", "/bin/bash", "alice")
    uid = booted.output("id", "--user", "alice")
    booted.write(f"{FOLDER}/train.py", block("import argparse"))
    config = re.search(r"<< 'END'\n(.*?)^END$", block("cat > trainerd.toml"), re.MULTILINE | re.DOTALL)
    assert config is not None
    booted.write(f"{FOLDER}/trainerd.toml", config[1])
    booted.run("chown", "-R", "alice:", FOLDER)
    booted.run("systemctl", "start", f"user@{uid}")  # what a login does

    def alice(text: str) -> str:
        path = f"{PREFIX}/bin:/usr/local/bin:/usr/bin:/bin"
        environment = {"XDG_RUNTIME_DIR": f"/run/user/{uid}", "HOME": "/home/alice", "USER": "alice"}
        words = ["runuser", "--user", "alice", "--", "env", f"--chdir={FOLDER}", f"PATH={path}", "bash", "-euc", text]
        return booted.run(*words, environment=environment).stdout.strip()

    def trains() -> bool:
        has_state = booted.path(f"{FOLDER}/runs/train/state.json").exists()
        return has_state and "training (pid" in alice("trainerd status")

    alice(block("trainerd install --user"))
    wait_for("the service to train", trains)
    booted.reboot()
    wait_for("the service to train again, with nobody logged in", trains, seconds=120)
    said = alice(block("trainerd events"))
    assert re.search(r"pause\s+step \d+", said) and re.search(r"resume\s+step \d+", said), said
    alice("systemctl --user stop trainerd")
    assert "paused" in alice("trainerd status")
