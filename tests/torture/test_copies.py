"""Faults of the destination of a copy, and copiers that are killed: nothing that is not there is said to be copied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.torture.conftest import Tell, amount
from tests.unit.copies.conftest import copied_rundir
from tests.unit.copies.stores import copy_with_faults
from trainerd.rundir.paths import RunDirectory

__all__ = ["copied_rundir"]
FIRST = 100  # those before are among the unit tests


@pytest.mark.long
def test_no_fault_leaves_a_false_copy(
    copied_rundir: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Tell
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    seeds = range(FIRST, FIRST + amount(200, 2000))
    failed = sum(copy_with_faults(copied_rundir, tmp_path / "back", seed) for seed in seeds)
    record_property("destinations", len(seeds))
    record_property("tries that failed or were killed", failed)
