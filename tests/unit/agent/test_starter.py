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


def test_a_fork_of_an_entry_that_was_removed_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = threading.Event(), threading.Event()
    verified = {"/old.toml": first, "/new.toml": second}
    begun = list[str]()

    def begin(entry: QueueEntry, after: QueueEntry) -> None:
        verified[entry.config].wait()
        begun.append(entry.config)
        raise ValueError(entry.config)

    monkeypatch.setattr(starter, "begin", begin)
    subject, other = Starter(), QueueEntry(config="/b.toml", logdir="/b", folder="/")
    for config in ("/old.toml", "/new.toml"):
        entry = QueueEntry(config=config, logdir="/a", folder="/", after="b", begin_at="best")
        subject.start("a", entry, other, (), has_gpus=False)
    first.set()
    wait_for(lambda: begun == ["/old.toml"], "the end of the first fork")
    assert subject.is_starting("a") and subject.take_result("a") is None
    second.set()
    wait_for(lambda: not subject.is_starting("a"), "the end of the second one")
    assert subject.take_result("a") == StartResult(70, "/new.toml")
