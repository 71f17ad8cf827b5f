"""packaging/Containerfile: what it builds trains in a volume, saves when it is stopped, and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.buildah import CHECKOUT, Buildah, Image
from tests.packaging.bootstrap import USER
from tests.packaging.root import Root
from tests.packaging.suites import on_the_first

RECIPE = CHECKOUT / "packaging" / "Containerfile"
SECONDS = 300.0  # how long anything may take


@pytest.fixture
def image(root: Root, scratch: Path) -> Iterator[Image]:
    """The image, upon a system on which all that trainerd requires is installed, but not trainerd."""
    root.run("/opt/trainerd/bin/pip", "uninstall", "--quiet", "--yes", "trainerd")
    buildah = Buildah(scratch / "images")
    buildah.import_root(root.path, "localhost/base")
    yield buildah.build(RECIPE, "localhost/base", "localhost/trainerd")


class Volume:
    """Args:
    path: a folder for the image's runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o755)
        os.chown(path, USER, USER)

    def state(self) -> dict[str, Any]:
        """What the run in it says of itself."""
        try:
            state: dict[str, Any] = json.loads((self.path / "digits" / "state.json").read_text())
        except FileNotFoundError:
            return {"phase": None, "step": -1}
        return state

    def until_trained(self, step: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until the run has trained past a step."""
        deadline = time.monotonic() + SECONDS
        while not (self.state()["phase"] == "training" and self.state()["step"] > step):
            assert process.poll() is None, f"it ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{SECONDS:.0f} s, and no step after {step}: {self.state()}"
            time.sleep(0.1)


def first_process(outside: subprocess.Popen[bytes]) -> int:
    """PID 1 of a container: the only child of what entered it."""
    [child] = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
    return int(child)


@on_the_first
def test_the_recipe(image: Image, tmp_path: Path) -> None:
    assert image.config["User"] == f"{USER}:{USER}"
    assert image.config["StopSignal"] == "SIGTERM"
    assert image.config["Entrypoint"] == ["trainerd", "run"]
    assert list(image.config["Volumes"]) == ["/job/runs"]
    volume = Volume(tmp_path / "runs")
    image.root.place(volume.path, "/job/runs")
    reached = 0
    for _ in range(2):
        with (tmp_path / "log").open("ab") as log:
            container = subprocess.Popen(image.command("--forever"), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            volume.until_trained(reached, container)
            os.kill(first_process(container), signal.SIGTERM)
            assert container.wait(SECONDS) == 0, (tmp_path / "log").read_text()
        finally:
            container.kill()
            container.wait()
        state = volume.state()
        assert state["phase"] == "paused" and state["step"] > reached
        checkpoint = volume.path / "digits" / f"model.ckpt-{state['step']}.index"
        assert checkpoint.stat().st_uid == USER
        reached = state["step"]
    kinds = [json.loads(line) for line in (volume.path / "digits" / "events.jsonl").read_text().splitlines()]
    print(kinds)
