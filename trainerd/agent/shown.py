"""The queue as a person sees it: each entry with its stage, and why it waits."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from trainerd.agent import notes
from trainerd.agent.entry import QueueEntry
from trainerd.agent.notes import AgentNotes, EntryNotes
from trainerd.agent.progress import EntryProgress, Stage
from trainerd.agent.queue_folder import Queue, QueueFolder
from trainerd.agent.when.conditions import moment
from trainerd.version import __version__


@dataclass(frozen=True)
class ShownEntry:
    """One entry.

    Attributes:
      name: its name in the queue.
      entry: what its file says.
      stage: its stage.
      gpus: the GPUs that it has.
      why: why it waits, is paused, or how it ended; empty if it trains.
      until: when that changes, in seconds since 1970 (UTC), if that is known.
      failures: how often it has failed.
    """

    name: str
    entry: QueueEntry
    stage: Stage
    gpus: tuple[int, ...] = ()
    why: str = ""
    until: float | None = None
    failures: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON's types."""
        about = {"stage": str(self.stage), "why": self.why, "until": self.until, "failures": self.failures}
        return {"name": self.name, **asdict(self.entry), **about, "gpus_given": list(self.gpus)}

    def line(self, now: float) -> str:
        """Return its stage, and why, in a line; `now` is in seconds since 1970 (UTC)."""
        until = f" until {until_text(self.until, now)}" if self.until is not None and "until" not in self.why else ""
        if self.stage is Stage.WAITING and self.why:
            return f"{self.why}{until}"
        return f"{self.stage}{until}: {self.why}" if self.why else f"{self.stage}{until}"


def shown(queue: Queue, known: AgentNotes) -> list[ShownEntry]:
    """Return all entries, in the order of the queue."""
    return [_shown(name, entry, known.entries.get(name)) for name, entry in queue.entries.items()]


def _shown(name: str, entry: QueueEntry, found: EntryNotes | None) -> ShownEntry:
    if found is None or found.progress.since < entry.since:
        found = EntryNotes(EntryProgress(), entry.logdir, "the agent has not seen it yet")
    progress = found.progress
    is_paused = entry.paused and progress.stage is Stage.WAITING
    stage = Stage.PAUSED if is_paused else progress.stage
    return ShownEntry(name, entry, stage, progress.gpus, found.why, found.until, progress.failures)


def by_run() -> Mapping[Path, ShownEntry]:
    """Return the entries of the user's queue by their run directories.

    Raises:
      StorageError: the queue cannot be read.
    """
    queue = QueueFolder().read()
    return {Path(each.entry.logdir): each for each in shown(queue, notes.read())} if queue.entries else {}


def warning(known: AgentNotes, queue: Queue) -> str:
    """Return what is wrong with the agent, and what to do; empty if nothing is."""
    if known.host not in ("", socket.gethostname()):
        return (
            f"The last agent of this queue started on {known.host}. This machine cannot check whether it still runs. "
            "If it has ended, type `trainerd agent` to train the queue here."
        )
    if not known.is_alive():
        return "No agent runs: `trainerd agent` trains the queue." if queue.entries else ""
    if known.version != __version__:
        what = f"The agent is trainerd {known.version}, and this is {__version__}"
        return f"{what}: restart the agent. Its runs continue."
    return "\n".join(known.troubles)


def until_text(until: float, now: float) -> str:
    """Return a moment in local time: with its day if that is not today. Both are in seconds since 1970 (UTC)."""
    return moment(datetime.fromtimestamp(until), datetime.fromtimestamp(now))
