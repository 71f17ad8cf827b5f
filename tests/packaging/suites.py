"""The releases that the wheel is tried on: Debian 13, or those that SUITE names: `SUITE="bookworm noble"`.

Debian 13 has the newest Python that trainerd takes, and pip installs the newest TensorFlow there. Debian 12 has the
oldest Python, with which the gate runs the tests.
"""

from __future__ import annotations

import os

import pytest

SUITES = os.environ.get("SUITE", "trixie").split()

on_each = pytest.mark.parametrize("root", SUITES, indirect=True)
on_the_first = pytest.mark.parametrize("root", SUITES[:1], indirect=True)
