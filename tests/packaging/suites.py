"""The releases that the wheel is tried on: those of the README, or the ones that SUITE names."""

from __future__ import annotations

import os

import pytest

SUITES = os.environ.get("SUITE", "bookworm noble").split()

on_each = pytest.mark.parametrize("root", SUITES, indirect=True)
on_the_first = pytest.mark.parametrize("root", SUITES[:1], indirect=True)
