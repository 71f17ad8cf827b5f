"""Starts of runs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.waiting import wait_for
from trainerd.agent import starter
from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import StartResult
from trainerd.agent.starter import Starter, unit_of
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


def test_a_run_that_begins_at_a_checkpoint_of_one_that_is_gone_does_not_begin_at_step_0(tmp_path: Path) -> None:
    entry = QueueEntry(config="/a.toml", logdir=str(tmp_path), folder="/", after="b", begin_at="best")
    subject = Starter()
    subject.start("a", entry, None, (), has_gpus=False)
    wait_for(lambda: not subject.is_starting("a"), "the end of the start")
    result = subject.take_result("a")
    assert result is not None and result.code == 69 and "best of b, which is not in the queue" in result.text


def test_the_unit_of_the_user_trains_a_config_unless_it_has_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon starts the copier of its run. The unit does not, and nobody starts the copier's unit."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for path in ("systemd/private", "systemd/user/trainerd@.service", "trainerd/a.toml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    config = tmp_path / "trainerd" / "a.toml"
    entry = QueueEntry(config=str(config), logdir="/a", folder=str(config.parent))
    config.write_text('entry = "job:job"\nlogdir = "run"\n', encoding="utf-8")
    assert unit_of(entry) == "trainerd@a"
    config.write_text('entry = "job:job"\nlogdir = "run"\n[copy]\nto = "file:///mnt/nas/a"\n', encoding="utf-8")
    assert unit_of(entry) is None
    config.write_text("entry = 3", encoding="utf-8")
    assert unit_of(entry) is None
