"""The files of the queue: written by commands, edited by persons, several of them at once."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.unit.conftest import NAMES, FakeTime
from trainerd.agent import queue_folder
from trainerd.agent.entry import QueueEntry
from trainerd.agent.queue_folder import QueueFolder
from trainerd.errors import ConfigError, StorageError, UsageError


def entry(logdir: str = "/runs/a", **fields: object) -> QueueEntry:
    return QueueEntry(config="/a.toml", logdir=logdir, folder="/", **fields)  # type: ignore[arg-type]


@pytest.fixture
def queue(tmp_path: Path, clock: FakeTime) -> QueueFolder:
    """A queue that does not exist yet."""
    return QueueFolder(tmp_path / "queue", clock=clock)


def add(queue: QueueFolder, *names: str, priority: int = 0) -> None:
    for name in names:
        queue.add(name, entry(f"/runs/{name}", priority=priority))


def order(queue: QueueFolder) -> list[str]:
    return list(queue.read().entries)


def test_there_is_no_queue_before_the_first_entry(queue: QueueFolder) -> None:
    assert not queue.read().entries and queue.stamp() is None and not queue.path.exists()


def test_each_command_changes_the_stamp(queue: QueueFolder) -> None:
    stamps = [queue.stamp()]
    add(queue, "a", "b")
    stamps.append(queue.stamp())
    queue.move("b", "")
    stamps.append(queue.stamp())
    queue.remove("a")
    stamps.append(queue.stamp())
    queue.read()
    assert len(set(stamps)) == 4 and queue.stamp() == stamps[-1]


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_read_as_it_was_written(queue: QueueFolder, name: str, clock: FakeTime) -> None:
    full = entry(f"/runs/{name}", priority=-3, gpus=2, retries=1, set=(f'a="{name}"', "b=1"), max_steps=9, adopt=True)
    full = replace(full, arguments=("--epochs", "3", name), paused=True)
    queue.add("a", full)
    assert queue.read().entries == {"a": replace(full, place=1.0, since=clock.now)}


def test_entries_are_in_the_order_of_priorities_and_places(queue: QueueFolder) -> None:
    add(queue, "b", "a")
    add(queue, "high", priority=1)
    add(queue, "low", priority=-1)
    assert order(queue) == ["high", "b", "a", "low"]


# ---------------------------------------------------------------------- what is rejected


def test_a_name_is_in_the_queue_once(queue: QueueFolder) -> None:
    add(queue, "a")
    with pytest.raises(UsageError, match="a is in the queue already"):
        queue.add("a", entry("/runs/other"))
    (queue.path / "broken.toml").write_text("config = ")
    with pytest.raises(UsageError, match="broken is in the queue already"):
        queue.add("broken", entry("/runs/other"))


def test_a_run_is_in_the_queue_once(queue: QueueFolder) -> None:
    add(queue, "a")
    with pytest.raises(UsageError, match=r"the run in /runs/a is in the queue already, as a"):
        queue.add("b", entry("/runs/a"))


def test_a_chain_begins_in_the_queue(queue: QueueFolder) -> None:
    add(queue, "pretrain")
    with pytest.raises(UsageError, match=r"--after pretran: no such run is in the queue\. Did you mean pretrain"):
        queue.add("b", entry("/runs/b", after="pretran"))
    queue.add("b", entry("/runs/b", after="pretrain"))


def test_what_is_not_there_cannot_be_changed(queue: QueueFolder) -> None:
    add(queue, "digits")
    for change in (
        queue.resume,
        queue.remove,
        lambda name: queue.move(name, ""),
        lambda name: queue.move("digits", name),
    ):
        with pytest.raises(UsageError, match=r"the queue has no digit\. Did you mean digits"):
            change("digit")


# ---------------------------------------------------------------------- move, resume, remove


def test_move_puts_an_entry_in_front(queue: QueueFolder) -> None:
    add(queue, *"abcd")
    queue.move("c", "")
    assert order(queue) == ["c", "a", "b", "d"]
    queue.move("d", "a")
    assert order(queue) == ["c", "d", "a", "b"]
    queue.move("c", "b")
    assert order(queue) == ["d", "a", "c", "b"]
    queue.move("b", "b")
    assert sorted(order(queue)) == list("abcd")
    add(queue, "e")
    assert order(queue)[-1] == "e"


def test_move_is_among_equal_priorities(queue: QueueFolder) -> None:
    add(queue, "a", "b")
    add(queue, "high", priority=5)
    queue.move("b", "")
    assert order(queue) == ["high", "b", "a"]
    with pytest.raises(UsageError, match="a has priority 0 and high has 5: the order is among equal priorities"):
        queue.move("a", "high")


def test_resume_is_newer_than_what_was_known(queue: QueueFolder, clock: FakeTime) -> None:
    add(queue, "a")
    queue.change("a", lambda found: replace(found, paused=True))
    clock.now += 1
    queue.resume("a")
    found = queue.read().entries["a"]
    assert not found.paused and found.since == clock.now


def test_a_removed_entry_is_gone(queue: QueueFolder) -> None:
    add(queue, "a", "b")
    queue.remove("a")
    assert order(queue) == ["b"]


# ---------------------------------------------------------------------- edited by a person


def test_a_person_edits_an_entry(queue: QueueFolder) -> None:
    add(queue, "a", "b")
    file = queue.path / "b.toml"
    assert file.read_text().startswith("# An entry of the queue")
    file.write_text(file.read_text() + "priority = 7\n")
    assert order(queue) == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("config = ", "b.toml"),
        ('config = "a"\nlogdir = "b"\nfolder = "c"\npriorty = 1\n', "Did you mean"),
        ('config = "a"\nlogdir = "b"\nfolder = "c"\npriority = 1001\n', "priority"),
        ("", "config"),
    ],
)
def test_a_mistake_leaves_the_entry_as_it_was(queue: QueueFolder, text: str, says: str) -> None:
    add(queue, "a", "b")
    before = queue.read()
    (queue.path / "b.toml").write_text(text)
    found = queue.read(before)
    assert found.entries == before.entries and says in found.mistakes["b"]
    assert list(queue.read().entries) == ["a"]  # of a process that never saw it without the mistake
    with pytest.raises(ConfigError):
        queue.change("b", lambda each: each)
    queue.remove("b")
    assert not queue.read(found).mistakes and list(queue.read(found).entries) == ["a"]


def test_other_files_are_no_entries(queue: QueueFolder) -> None:
    add(queue, "a")
    for name in (".a.toml.swp", "a.toml~", "notes.txt", "#a.toml#", " .toml"):
        (queue.path / name).write_text("x")
    assert order(queue) == ["a"] and not queue.read().mistakes


# ---------------------------------------------------------------------- several at once, and a full disk


def test_adds_at_once_are_all_there(tmp_path: Path) -> None:
    def add_one(number: int) -> None:
        QueueFolder(tmp_path / "queue").add(f"run-{number}", entry(f"/runs/{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add_one, range(40)))
    found = QueueFolder(tmp_path / "queue").read()
    assert len(found.entries) == 40 and sorted(each.place for each in found.entries.values()) == list(range(1, 41))


def test_one_of_several_adds_of_a_name_succeeds(tmp_path: Path) -> None:
    def add_one(number: int) -> int:
        try:
            QueueFolder(tmp_path / "queue").add("same", entry(f"/runs/{number}"))
        except UsageError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(add_one, range(16))) == 1


def test_a_full_disk_loses_nothing(queue: QueueFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    add(queue, "a")

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    before = queue.read()
    with monkeypatch.context() as patched:
        patched.setattr(queue_folder, "write_atomic", full)
        patched.setattr(queue_folder, "write_durable", full)
        with pytest.raises(StorageError, match="No space left on device"):
            add(queue, "b")
        with pytest.raises(StorageError, match="No space left on device"):
            queue.resume("a")
    assert queue.read() == before
    add(queue, "b")
    assert order(queue) == ["a", "b"]


@pytest.mark.parametrize(("at", "count"), [("write_durable", 0), ("put_in_place", 0), ("fsync_directory", 3)])
def test_several_are_added_all_or_none_whenever_a_kill_comes(
    queue: QueueFolder, monkeypatch: pytest.MonkeyPatch, at: str, count: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(queue_folder, at, mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            queue.add_all({name: entry(f"/runs/{name}") for name in ("a", "b", "c")})
    assert len(QueueFolder(queue.path).read().entries) == count
    add(queue, "d")
    assert len(order(queue)) == count + 1 and not (queue.path / ".adding").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"write .*file/queue"):
        add(QueueFolder(tmp_path / "file" / "queue"), "a")
