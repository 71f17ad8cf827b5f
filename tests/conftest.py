"""What all tests share."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def runs_are_remembered_elsewhere() -> Iterator[None]:
    """The runs of tests are none of whoever runs them."""
    with tempfile.TemporaryDirectory(prefix="trainerd-tests-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        yield
        del os.environ["XDG_STATE_HOME"]


@pytest.fixture(autouse=True, scope="module")
def garbage_is_looked_for_among_what_is_new() -> Iterator[None]:
    """What outlives a module's tests, graphs of TensorFlow above all, is left out of later garbage collections.

    They look through everything there is: after a thousand tests one of them took ten seconds.
    """
    yield
    gc.collect()
    gc.freeze()
