"""The queue: a folder of entries, one file each, which any process of the user may change."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from trainerd.agent.entry import QueueEntry
from trainerd.errors import ConfigError, UsageError
from trainerd.rundir.names import RunIdentity, is_name
from trainerd.rundir.runs import Cached, Stamp, stamp_of
from trainerd.system.durable_files import fsync_directory, storage, write_atomic, write_durable
from trainerd.system.staging import put_in_place, staged
from trainerd.system.xdg import state_home
from trainerd.text import did_you_mean

_SUFFIX = ".toml"
_ADDING = ".adding"  # a folder of entries to add: once it has this name, all of them are added, by whoever sees it
_LONGEST = 48  # characters of a name that a word or a number follows


@dataclass(frozen=True)
class Queue:
    """The entries at one moment.

    Attributes:
      entries: name to entry, in the order of their priorities and places.
      mistakes: name to what is wrong with its file.
    """

    entries: Mapping[str, QueueEntry] = field(default_factory=dict)
    mistakes: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.entries or name in self.mistakes


class QueueFolder:
    """The folder of the queue.

    Args:
      path: the folder, which need not exist. Default: the user's own.
      clock: seconds since 1970 (UTC).
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path or state_home() / "trainerd" / "queue"
        self._clock = clock
        self._files: dict[str, tuple[Path, Cached[QueueEntry]]] = {}

    def read(self, before: Queue = Queue()) -> Queue:
        """Read all entries.

        Args:
          before: what was read before: an entry whose file has a mistake since then stays as it was.

        Raises:
          StorageError: the folder cannot be read.
        """
        entries, mistakes = dict[str, QueueEntry](), dict[str, str]()
        with storage(f"read {self.path}", missing_ok=True):
            files = os.listdir(self.path)
            if _ADDING in files:
                with self._changing():
                    files = os.listdir(self.path)
            found = [file.removesuffix(_SUFFIX) for file in sorted(files) if file.endswith(_SUFFIX)]
            self._files = {name: self._files.get(name) or self._new(name) for name in found if is_name(name)}
            for name, (file, cached) in self._files.items():
                try:
                    entries[name] = cached.get(stamp_of(file), partial(QueueEntry.read, file))
                except ConfigError as error:
                    if file.exists():
                        mistakes[name] = str(error)
                        entries |= {each: entry for each, entry in before.entries.items() if each == name}
        order = sorted(entries.items(), key=lambda each: (-each[1].priority, each[1].place, each[0]))
        return Queue(dict(order), mistakes)

    def stamp(self) -> Stamp | None:
        """Return a value that changes when an entry is added, removed or written by a command.

        A person's editor may write into a file in place, which only `read` sees.
        """
        return stamp_of(self.path)

    def add(self, name: str, entry: QueueEntry) -> None:
        """Add an entry at the end of its priority.

        Raises:
          UsageError: there is one with this name, or for this run directory; or no entry that it is to come after.
          StorageError: it cannot be written.
        """
        self.add_all({name: entry})

    def add_all(self, entries: Mapping[str, QueueEntry]) -> None:
        """Add entries, by their names: all or none, also if the process is killed meanwhile; see `add`."""
        with self._changing() as queue:
            for name, entry in entries.items():
                _require_addable(queue, name, entry)
            last = max((each.place for each in queue.entries.values()), default=0.0)
            with storage(f"write {self.path}"), staged(self.path / _ADDING) as staging:
                for place, (name, entry) in enumerate(entries.items(), 1):
                    placed = replace(entry, place=last + place, since=self._clock())
                    write_durable(staging / self._file(name).name, placed.to_toml().encode())
                put_in_place(staging, self.path / _ADDING)
            self._add_staged()

    def change(self, name: str, change: Callable[[QueueEntry], QueueEntry]) -> QueueEntry:
        """Change an entry. Returns the new one.

        Raises:
          UsageError: the queue has no such entry.
          StorageError: it cannot be written.
        """
        with self._changing() as queue:
            changed = change(self._found(queue, name))
            self._write(name, changed)
            return changed

    def move(self, name: str, before: str) -> None:
        """Put an entry in front of another one of the same priority, or in front of all if `before` is empty.

        Raises:
          UsageError: the queue has no such entry, or they have different priorities.
          StorageError: it cannot be written.
        """
        with self._changing() as queue:
            entry = self._found(queue, name)
            equal = {each: found for each, found in queue.entries.items() if found.priority == entry.priority}
            if before and self._found(queue, before).priority != entry.priority:
                raise UsageError(
                    f"{name} has priority {entry.priority} and {before} has {queue.entries[before].priority}: the "
                    "order is among equal priorities. `--priority` changes one."
                )
            others = [each for each in equal if each != name]
            index = others.index(before) if before in others else 0
            for place, each in enumerate([*others[:index], name, *others[index:]], 1):
                if equal[each].place != place:
                    self._write(each, replace(equal[each], place=float(place)))

    def pause(self, name: str) -> None:
        """Pause an entry: it keeps its place, and does not train until it is resumed.

        Raises:
          UsageError: the queue has no such entry.
          StorageError: it cannot be written.
        """
        self.change(name, lambda entry: replace(entry, paused=True))

    def resume(self, name: str) -> None:
        """Have an entry wait for its turn: one that is paused, has failed, or is done.

        Raises:
          UsageError: the queue has no such entry.
          StorageError: it cannot be written.
        """
        self.change(name, lambda entry: replace(entry, paused=False, since=self._clock()))

    def remove(self, name: str) -> None:
        """Remove an entry. What trains, continues.

        Raises:
          UsageError: the queue has no such entry.
          StorageError: it cannot be removed.
        """
        with self._changing() as queue:
            if name not in queue.mistakes:
                self._found(queue, name)
            with storage(f"remove {self._file(name)}"):
                self._file(name).unlink(missing_ok=True)

    def _found(self, queue: Queue, name: str) -> QueueEntry:
        if name in queue.mistakes:
            raise ConfigError(queue.mistakes[name])
        if name not in queue.entries:
            raise UsageError(f"the queue has no {name}.{did_you_mean(name, queue.entries)}")
        return queue.entries[name]

    def _new(self, name: str) -> tuple[Path, Cached[QueueEntry]]:
        return self._file(name), Cached()

    def _file(self, name: str) -> Path:
        return self.path / f"{name}{_SUFFIX}"

    def _write(self, name: str, entry: QueueEntry) -> None:
        with storage(f"write {self._file(name)}"):
            write_atomic(self._file(name), entry.to_toml().encode())

    def _add_staged(self) -> None:
        """Move staged entries into the queue, including those of a killed command. The caller holds the lock."""
        adding = self.path / _ADDING
        with storage(f"write {self.path}", missing_ok=True):
            for file in os.listdir(adding):
                (adding / file).replace(self.path / file)
            fsync_directory(self.path)
            adding.rmdir()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Queue]:
        """Read the queue, and keep other processes from changing it while the block runs."""
        with contextlib.ExitStack() as stack:
            with storage(f"write {self.path}"):
                self.path.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((self.path / ".lock").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
            self._add_staged()
            yield self.read()


def _require_addable(queue: Queue, name: str, entry: QueueEntry) -> None:
    if name in queue:
        raise UsageError(f"{name} is in the queue already. Give this one another name with --name.")
    for other, each in queue.entries.items():
        if os.path.realpath(each.logdir) == os.path.realpath(entry.logdir):
            raise UsageError(f"the run in {entry.logdir} is in the queue already, as {other}.")
    if entry.after and entry.after not in queue.entries:
        raise UsageError(
            f"--after {entry.after}: no such run is in the queue.{did_you_mean(entry.after, queue.entries)}"
        )


def free_name(queue: Queue, path: Path, name: str) -> str:
    """Return a name for a run that no entry has: its own, or one that is like it.

    Args:
      queue: the entries.
      path: the run directory.
      name: the `name` of its config; empty for none.
    """
    return next(each for each in _names(path, name) if is_name(each) and each not in queue)


def _names(path: Path, name: str) -> Iterator[str]:
    """Yield names for a run, the plainest first."""
    own = RunIdentity(path, name).own_name
    yield own
    own = own[:_LONGEST] if is_name(own) else "run"
    yield f"{own}@{path.parent.name or os.sep}"
    yield from (f"{own}-{number}" for number in itertools.count(2))
