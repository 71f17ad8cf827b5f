"""The options of commands that add runs to the queue."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import click

from trainerd.agent.entry import QueueEntry
from trainerd.agent.notes import AgentNotes
from trainerd.cli.options import Command
from trainerd.cli.usage import Whole
from trainerd.errors import UsageError


@dataclass(frozen=True)
class QueueOptions:
    """The options of an entry of the queue.

    Attributes:
      priority, retries: see `QueueEntry`.
      gpus: how many GPUs it gets; None for the agent's default.
    """

    priority: int
    gpus: int | None
    retries: int

    def apply(self, entry: QueueEntry, known: AgentNotes) -> QueueEntry:
        """Return an entry with these options.

        Args:
          entry: the entry.
          known: what the agent has.

        Raises:
          UsageError: it is to get more GPUs than the agent has.
        """
        if known.version and (self.gpus or 0) > len(known.gpus):
            raise UsageError(f"--gpus {self.gpus}: the agent has {len(known.gpus)}.")
        return replace(entry, priority=self.priority, gpus=self.gpus, retries=self.retries)


def of_entry(command: Command) -> Command:
    """Give a command the options of an entry, as its argument `place`: one `QueueOptions`."""

    @functools.wraps(command)
    def call(priority: int, gpus: int | None, retries: int, **given: Any) -> Any:
        return command(place=QueueOptions(priority, gpus, retries), **given)

    for option in (
        click.option(
            "--retries",
            type=Whole(0, 1024),
            default=0,
            show_default=True,
            help="How often to start a run again after a failure.",
        ),
        click.option("--gpus", type=Whole(0, 1024), help="How many GPUs a run gets. Default: 1 if the agent has any."),
        click.option(
            "--priority",
            type=Whole(-1000, 1000),
            default=0,
            show_default=True,
            help="A run with a higher priority takes the place of one with a lower one, and gives it back.",
        ),
    ):
        call = option(call)
    return call
