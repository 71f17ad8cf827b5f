"""A UPS: what its variables announce, and an `upsc` that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainerd.watch.interruptions import ups
from trainerd.watch.interruptions.interruption import SourceError
from trainerd.watch.interruptions.ups import Ups, ask_upsc


@pytest.mark.parametrize(
    ("status", "runtime", "secs"),
    [
        ("OL", "10", None),
        ("OL CHRG", "", None),
        ("OL LB", "10", None),  # charging an empty battery
        ("OB DISCHRG", "600", None),
        ("OB", "", None),
        ("OB", "nan", None),
        ("OB", "-1", None),
        ("OB LB", "", 60.0),
        ("OB DISCHRG LB", "50", 50.0),
        ("OB LB", "1e9", 900.0),
        ("OB", "119", 119.0),
        ("OB", "0", 10.0),
        ("FSD OL", "", 60.0),
    ],
)
def test_what_counts_as_almost_empty(status: str, runtime: str, secs: float | None) -> None:
    found = Ups("ups", 120.0, lambda name: {"ups.status": status, "battery.runtime": runtime}).poll()
    assert (found.secs if found is not None else None) == secs


def test_it_is_announced_once_until_the_power_is_back() -> None:
    said = {"ups.status": "OB LB \x1b[2J"}
    source = Ups("ups@localhost", 120.0, lambda name: said, lambda: 1000.0)
    found = source.poll()
    assert found is not None and (found.kind, found.key) == ("ups", "ups ups@localhost 1000")
    assert "almost empty" in found.title and found.title.isprintable()
    assert source.poll() is None
    said["ups.status"] = "OB"
    assert source.poll() is None
    said["ups.status"] = "OB LB"
    assert source.poll() is None
    said["ups.status"] = "OL"
    assert source.poll() is None
    said["ups.status"] = "OB LB"
    assert source.poll() is not None


def test_an_answer_without_a_status_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"no ups\.status"):
        Ups("ups", 120.0, lambda name: {"battery.charge": "7"}).poll()


def _upsc(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = folder / "upsc"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_upsc_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        'echo "Init SSL without certificate database" >&2; echo "ups.status: OB LB"; echo "device: $1"; echo nonsense'
    )
    _upsc(tmp_path, monkeypatch, said)
    assert ask_upsc("ups@localhost") == {"ups.status": "OB LB", "device": "ups@localhost"}


def test_an_upsc_that_fails_or_hangs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _upsc(tmp_path, monkeypatch, "echo 'Error: Data stale' >&2; exit 1")
    with pytest.raises(SourceError, match=r"fails with 1: Error: Data stale"):
        ask_upsc("ups")
    monkeypatch.setattr(ups, "UPSC_SECS", 0.01)
    _upsc(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(SourceError, match="has not answered"):
        ask_upsc("ups")
    (tmp_path / "upsc").chmod(0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="cannot be started"):
        ask_upsc("ups")
    (tmp_path / "upsc").unlink()
    with pytest.raises(SourceError, match="not installed"):
        ask_upsc("ups")
