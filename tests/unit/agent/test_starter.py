"""Starts of runs."""

from __future__ import annotations

import threading

import pytest

from tests.waiting import wait_for
from trainerd.agent import starter
from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import StartResult
from trainerd.agent.starter import Starter
from trainerd.errors import UsageError


def test_a_fork_that_takes_long_does_not_keep_the_agent_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = threading.Event()

    def begin(entry: QueueEntry, after: QueueEntry) -> None:
        verified.wait()
        raise UsageError("no such checkpoint")

    monkeypatch.setattr(starter, "begin", begin)
    entry = QueueEntry(config="/a.toml", logdir="/a", folder="/", after="b", begin_at="best")
    subject = Starter()
    subject.start("a", entry, QueueEntry(config="/b.toml", logdir="/b", folder="/"), (), has_gpus=False)
    assert subject.is_starting("a") and subject.take_result("a") is None
    verified.set()
    wait_for(lambda: not subject.is_starting("a"), "the end of the start")
    assert subject.take_result("a") == StartResult(64, "no such checkpoint")
