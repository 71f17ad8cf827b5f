"""The releases that the wheel is tried on: Debian 12, or those that SUITE names: `SUITE="bookworm noble"`."""

from __future__ import annotations

import os

import pytest

SUITES = os.environ.get("SUITE", "bookworm").split()

on_each = pytest.mark.parametrize("root", SUITES, indirect=True)
on_the_first = pytest.mark.parametrize("root", SUITES[:1], indirect=True)
