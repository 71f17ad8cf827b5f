"""Which cases of a test are tried by `make test`, and which by `make test-long` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every(nth: int, cases: Iterable[Any]) -> list[Any]:
    """All cases; every nth is quick, and the others are among the long tests."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if at % nth == 0 else pytest.mark.long)
        for at, case in enumerate(cases)
    ]
