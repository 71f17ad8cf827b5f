"""What all tests share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def garbage_is_looked_for_among_what_is_new() -> Iterator[None]:
    """What outlives a module's tests, graphs of TensorFlow above all, is left out of later garbage collections.

    They look through everything there is: after a thousand tests one of them took ten seconds.
    """
    yield
    gc.collect()
    gc.freeze()
