"""How much of each fault there is, and the figures that are shown at the end."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.process.conftest import memory, programs, project, small_disk, start

__all__ = ["memory", "programs", "project", "small_disk", "start"]

Tell = Callable[[str, object], None]


def amount(short: int, long: int) -> int:
    """How many of a fault there are to be: a few in `make test-long`, many in `make torture`."""
    return long if os.environ.get("TORTURE") == "long" else short


@pytest.fixture
def as_root() -> None:
    """Leave a test out that mounts a disk, where that may not be done; not in CI."""
    if os.geteuid() != 0 and not os.environ.get("CI"):
        pytest.skip("needs root to mount a disk")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the tests counted."""
    lines = [
        f"{report.nodeid.rpartition('::')[2]}: {name} {value}"
        for report in terminalreporter.getreports("passed")
        if report.when == "call"
        for name, value in report.user_properties
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
