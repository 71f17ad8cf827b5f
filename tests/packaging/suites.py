"""The releases that the wheel is tried on: those of the README, or the ones that SUITE names."""

from __future__ import annotations

import os

import pytest

SUITES = os.environ.get("SUITE", "bookworm noble").split()

_GROUPED = [pytest.param(suite, marks=pytest.mark.xdist_group(suite)) for suite in SUITES]
on_each = pytest.mark.parametrize("root", _GROUPED, indirect=True)
on_the_first = pytest.mark.parametrize("root", _GROUPED[:1], indirect=True)
