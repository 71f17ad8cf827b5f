"""The queue on the page: what is shown, and what buttons change. A page names entries and runs, and never a path."""

from __future__ import annotations

import os
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainerd.agent import notes
from trainerd.agent.entry import QueueEntry
from trainerd.agent.notes import AgentNotes
from trainerd.agent.progress import Stage
from trainerd.agent.queue_folder import Queue, QueueFolder, free_name
from trainerd.agent.shown import ShownEntry, shown, warning
from trainerd.errors import TrainerdError, UsageError
from trainerd.rundir import registry
from trainerd.rundir.runs import Cached, stamp_of
from trainerd.watch.run_reader import RunView

MOST_ENTRIES = 200  # that are shown at once
_UNTIL = "waits until "
_MISTAKES = 5  # files with mistakes that are reported at once
_WAIT_AGAIN = (Stage.PAUSED, Stage.FAILED, Stage.DONE)  # entries that `resume` has wait for their turn


class PageQueue:
    """Reads the queue of this user for the page, and changes it. Files are read again only when they have changed.

    Args:
      folder: the queue. Default: the user's own.

    Attributes:
      changes: what can be done to an entry.
    """

    def __init__(self, folder: QueueFolder | None = None) -> None:
        self._folder = folder or QueueFolder()
        self._reading = threading.Lock()
        self._notes: Cached[AgentNotes] = Cached()
        self._starts: Cached[Mapping[Path, QueueEntry]] = Cached()
        self._changes: Mapping[str, tuple[Callable[[str], None], str]] = {
            "pause": (self._folder.pause, "paused {}"),
            "resume": (self._folder.resume, "{} waits for its turn"),
            "up": (self._move_up, "moved {} up"),
            "remove": (self._folder.remove, "removed {} from the queue: the run itself stays"),
        }
        self.changes = tuple(self._changes)

    def stages(self) -> Mapping[str, int]:
        """Return how many entries are in each stage.

        Raises:
          StorageError: the queue cannot be read.
        """
        return dict.fromkeys(map(str, Stage), 0) | Counter(str(each.stage) for each in shown(*self._read()))

    def as_json(self, runs: Sequence[RunView]) -> dict[str, Any] | None:
        """Return the queue as JSON's types; None if this user has none: no entry, and no agent that runs.

        Args:
          runs: all runs that the page knows.
        """
        try:
            queue, known = self._read()
            starts = self._startable()
        except TrainerdError as error:
            return {"said": [str(error)], "count": 0, "entries": [], "can_add": []}
        if not (queue.entries or queue.mistakes or known.is_alive()):
            return None
        by_path = {run.rundir.path: run for run in runs}
        queued = {Path(entry.logdir) for entry in queue.entries.values()}
        return {
            "said": [*filter(None, [warning(known, queue)]), *list(queue.mistakes.values())[:_MISTAKES]],
            "count": len(queue.entries),
            "entries": [
                _entry(each, by_path.get(Path(each.entry.logdir))) for each in shown(queue, known)[:MOST_ENTRIES]
            ],
            "can_add": [run.name for path, run in by_path.items() if path in starts and path not in queued],
        }

    def change(self, name: str, what: str) -> str:
        """Change an entry; `what` is one of `changes`. Returns what was done, in words.

        Raises:
          UsageError: there is no such entry.
          ConfigError: its file has mistakes.
          StorageError: the queue cannot be written.
        """
        act, words = self._changes[what]
        act(name)
        return words.format(name)

    def add(self, run: RunView) -> str:
        """Add a run as it was last started. Returns what was done, in words.

        Raises:
          UsageError: it is in the queue, or what it was started with is not recorded.
          StorageError: the queue cannot be read or written.
        """
        queue, _ = self._read()
        entry = self._startable().get(run.rundir.path)
        if entry is None:
            raise UsageError(
                f"the config of {run.name} is not recorded, or is gone. `trainerd queue add CONFIG` adds the run."
            )
        name = free_name(queue, run.rundir.path, run.identity.name)
        self._folder.add(name, entry)
        return f"added {name} to the queue"

    def _read(self) -> tuple[Queue, AgentNotes]:
        with self._reading:
            queue = self._folder.read()  # which reads the files that have changed
        return queue, self._notes.get(stamp_of(notes.file()), notes.read)

    def _startable(self) -> Mapping[Path, QueueEntry]:
        """Return the entries of the runs whose config is recorded and still there, by their run directories."""
        starts = self._starts.get(stamp_of(registry.folder()), _starts)
        return {path: entry for path, entry in starts.items() if os.path.exists(entry.config)}  # noqa: PTH110  no error

    def _move_up(self, name: str) -> None:
        """Put an entry in front of the one before it, if that has the same priority."""
        entries = self._folder.read().entries
        names = [
            each for each, entry in entries.items() if name in entries and entry.priority == entries[name].priority
        ]
        before = names[max(0, names.index(name) - 1)] if name in names else ""
        self._folder.move(name, before if before != name else "")


def _starts() -> dict[Path, QueueEntry]:
    found = ((run.path, QueueEntry.of_start(run)) for run in registry.known())
    return {path: entry for path, entry in found if entry is not None}


def _entry(each: ShownEntry, run: RunView | None) -> dict[str, Any]:
    state = run.state if run is not None else None
    is_hours = each.until is not None and each.why.startswith(_UNTIL)  # the page has its own words for the moment
    return {
        "name": each.name,
        "path": f"queue/{urllib.parse.quote(each.name, safe='')}",
        "run": run.name if run is not None else None,
        "stage": str(each.stage),
        "priority": each.entry.priority,
        "step": state.step if state is not None else None,
        "end": state.end if state is not None else None,
        "why": "" if is_hours else each.why,
        "until": each.until,
        "gpus": list(each.gpus),
        "resumes": each.entry.paused or each.stage in _WAIT_AGAIN,
    }
