"""Buildah, with a storage of its own: a driver that mounts nothing, and folders that go with the test's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.packaging.root import Root, host

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Image:
    """An image, and a container of it that nothing runs in yet.

    Args:
      root: the container's root.
      config: what its recipe says of how it is run, with the names of the OCI's specification.
    """

    root: Root
    config: dict[str, Any]

    def command(self, *arguments: str) -> list[str]:
        """What a runtime would run: its entrypoint with these arguments, as its user, in its folder, as PID 1."""
        user, _, _ = self.config["User"].partition(":")
        environment = [*self.config["Env"], *self.config["Entrypoint"], *arguments]
        return self.root.command(*environment, user=int(user), home=self.config["WorkingDir"])


class Buildah:
    """Args:
    folder: where images and containers are stored.
    """

    def __init__(self, folder: Path) -> None:
        self._options = ["--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]

    @contextlib.contextmanager
    def new_image(self, name: str, system: Path) -> Iterator[Root]:
        """Make an image of the folder of a system, as it is at the end of the block.

        Files are linked, not copied: the block may remove and replace them, and must write into none.
        """
        container = self._run("from", "scratch").strip()
        mounted = Path(self._run("mount", container).strip())
        host("cp", "--archive", "--link", f"{system}/.", mounted)
        yield Root(mounted)
        self._run("commit", "--quiet", "--rm", container, name)

    def build(self, recipe: Path, base: str, name: str) -> Image:
        """Build an image of this checkout upon a base, and make a container of it."""
        arguments = ["--build-arg", f"BASE={base}", "--file", str(recipe), "--tag", name]
        self._run("bud", "--isolation", "chroot", "--pull-never", "--format", "docker", *arguments, str(CHECKOUT))
        container = self._run("from", "--pull-never", name).strip()
        found = json.loads(self._run("inspect", "--type", "image", name))
        return Image(Root(Path(self._run("mount", container).strip())), found["Docker"]["config"])

    def _run(self, command: str, *arguments: str) -> str:
        return host("buildah", *self._options, command, *arguments)
