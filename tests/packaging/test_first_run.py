"""The first run of the README, on a bare system, by a user without rights."""

from __future__ import annotations

import json
from typing import Any

from tests.packaging.bootstrap import HOME, PREFIX, USER
from tests.packaging.root import Root
from tests.packaging.suites import on_each
from trainerd.version import __version__


def trainerd(root: Root, *arguments: str) -> str:
    return root.run(f"{PREFIX}/bin/trainerd", *arguments, user=USER, home=HOME)


def events(root: Root) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(trainerd(root, "events", "--json"))
    return found


@on_each
def test_a_run_is_made_looked_at_and_resumed(root: Root) -> None:
    assert trainerd(root, "--version").split() == ["trainerd", __version__]
    said = trainerd(root, "run", "--max-steps", "100")
    assert "Finished: max_steps = 100 is reached." in said
    assert "step 100" in trainerd(root, "status")
    trainerd(root, "run", "--max-steps", "150")
    state = json.loads(trainerd(root, "status", "--json"))
    assert (state["phase"], state["step"], state["running"]) == ("finished", 150, False)
    assert root.inside(f"{HOME}/runs/digits/model.ckpt-150.index").exists()
    reported = [(event["kind"], event["step"]) for event in events(root)]
    happened = [each for each in reported if each[0] not in ("evaluation", "best")]  # by the clock
    assert happened == [("start", None), ("finish", 100), ("start", None), ("resume", 100), ("finish", 150)]


@on_each
def test_the_unit_is_found(root: Root) -> None:
    command = f"{PREFIX}/bin/trainerd"
    root.run(command, "init", "/etc/trainerd")
    config = root.inside("/etc/trainerd/trainerd.toml")
    config.write_text(config.read_text().replace("runs/first", "/var/lib/trainerd"))
    shown = root.run(command, "install", "--system", "--dry-run").splitlines()
    assert shown[0] == "# /etc/systemd/system/trainerd.service"
    [start] = [line for line in shown if line.startswith("ExecStart=")]
    assert start.startswith(f"ExecStart={PREFIX}/bin/")
