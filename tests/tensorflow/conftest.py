"""What every test here must leave behind: nothing that goes on looking after a run that is over."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

CLOCKS = {"trainerd-ticker", "trainerd-idle", "trainerd-hooks"}


@pytest.fixture(autouse=True)
def no_clock_of_ours_goes_on() -> Iterator[None]:
    """A session that is closed has none of these threads any more."""
    before = set(threading.enumerate())
    yield
    assert not [thread.name for thread in set(threading.enumerate()) - before if thread.name in CLOCKS]
