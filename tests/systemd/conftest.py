"""Fixtures of the systemd tests: one machine for all of them, and a service for each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator

import pytest

from tests.systemd import machine as machines
from tests.systemd.machine import Machine
from tests.systemd.overlay import MachineError
from tests.systemd.service import Service, job_file

NewService = Callable[..., Service]


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """A booted machine. Where there can be none the tests fail: what was not tried does not work."""
    try:
        machines.require()
    except MachineError as error:
        pytest.fail(str(error), pytrace=False)
    with machines.machine() as booted:
        booted.write("/etc/trainerd/jobs.py", job_file())
        yield booted
    assert booted.leftovers() == []


@pytest.fixture
def service(machine: Machine, request: pytest.FixtureRequest) -> Iterator[NewService]:
    """Makes an installed service of the test's own: an instance with the test's name."""
    made: list[Service] = []

    def make(*arguments: str, name: str = "", **settings: str) -> Service:
        """Configure and install one; `arguments` go to `configure`, `settings` into a drop-in."""
        words = re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))
        short = f"{words[:14]}-{hashlib.sha256(words.encode()).hexdigest()[:6]}"
        new = Service(machine, name or short)
        made.append(new)
        new.configure(*arguments)
        new.install()
        if settings:
            new.adjust(**settings)
        return new

    yield make
    for each in made:
        each.remove()
