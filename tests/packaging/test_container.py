"""packaging/Containerfile: what it builds trains in a volume, saves when it is stopped, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.packaging.bootstrap import HOME, PREFIX, USER
from tests.packaging.buildah import CHECKOUT, Buildah, Image
from tests.packaging.root import Root
from tests.packaging.suites import on_the_first
from tests.packaging.volume import SECONDS, Volume

RECIPE = CHECKOUT / "packaging" / "Containerfile"


@pytest.fixture
def image(root: Root, scratch: Path) -> Image:
    """The image, upon a system that has what trainerd requires, but not trainerd, and no user of that number."""
    buildah = Buildah(scratch / "images")
    with buildah.new_image("localhost/base", root.path) as base:
        base.run(f"{PREFIX}/bin/pip", "uninstall", "--quiet", "--yes", "trainerd")
        base.run("userdel", "--remove", Path(HOME).name)
    return buildah.build(RECIPE, "localhost/base", "localhost/trainerd")


def train_and_stop(image: Image, volume: Volume, log: Path, *, after: int) -> int:
    """Run a container, stop it as a runtime does when it trains, and see it saved. The step."""
    with log.open("ab") as output:
        container = subprocess.Popen(image.command("--forever"), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        volume.until_trained(after, container)
        # What entered the container has one child: the container's PID 1.
        [first] = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
        os.kill(int(first), getattr(signal, image.config["StopSignal"]))
        assert container.wait(SECONDS) == 0, log.read_text()
    finally:
        container.kill()
        container.wait()
    state = volume.state()
    assert (state["phase"], state["pid"]) == ("paused", 1), log.read_text()
    step: int = state["step"]
    assert (volume.run / f"model.ckpt-{step}.index").stat().st_uid == USER
    return step


@on_the_first
def test_a_container_trains_saves_when_it_is_stopped_and_resumes(image: Image, tmp_path: Path) -> None:
    reported = {key: image.config[key] for key in ("User", "WorkingDir", "StopSignal", "Entrypoint")}
    assert reported == {
        "User": f"{USER}:{USER}",
        "WorkingDir": "/job",
        "StopSignal": "SIGTERM",
        "Entrypoint": ["trainerd", "run"],
    }
    [mounted] = image.config["Volumes"]
    volume, log = Volume(tmp_path / "runs"), tmp_path / "log"
    image.root.place(volume.path, mounted)
    first = train_and_stop(image, volume, log, after=0)
    second = train_and_stop(image, volume, log, after=first)
    assert second > first and volume.resumed_at() == [first]
