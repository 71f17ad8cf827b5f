"""Waits between tries."""

from __future__ import annotations

from trainerd.system.backoff import Backoff


def test_waits_double_up_to_a_limit_and_restart_after_a_success() -> None:
    backoff = Backoff(15.0, 600.0)
    assert [backoff.failed() for _ in range(8)] == [15, 30, 60, 120, 240, 480, 600, 600]
    assert backoff.failures == 8
    for _ in range(2000):
        assert backoff.failed() == 600
    backoff.succeeded()
    assert backoff.failures == 0 and backoff.failed() == 15
