"""`trainerd queue`: the runs that the agent trains."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from trainerd.agent import notes
from trainerd.agent.agent import until_text
from trainerd.agent.entry import QueueEntry
from trainerd.agent.notes import AgentNotes, EntryNotes
from trainerd.agent.progress import EntryProgress, Stage
from trainerd.agent.queue_folder import Queue, QueueFolder
from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples, GroupWithExamples
from trainerd.cli.columns import lines
from trainerd.cli.options import RunOptions
from trainerd.cli.say import say
from trainerd.cli.usage import Whole
from trainerd.config.bare_script import is_script
from trainerd.errors import UsageError
from trainerd.rundir.lock import Holder
from trainerd.rundir.names import RunIdentity, check_name
from trainerd.rundir.runs import RunReader
from trainerd.system.absolute import absolute
from trainerd.text import counted
from trainerd.version import __version__

_HEAD = ("run", "stage", "priority", "GPUs", "step", "until", "why")
_LEFT = {0, 1, 5, 6}


@click.group(
    "queue",
    cls=GroupWithExamples,
    invoke_without_command=True,
    examples={
        "trainerd queue": "Show what trains, and what waits and why.",
        "trainerd queue add digits.toml --priority 1": "Add a run, which takes the place of those with priority 0.",
        "trainerd queue remove digits": "Remove it. What trains, continues.",
    },
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, on one line.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show the queue: the runs that `trainerd agent` trains, each when it may and there is room.

    Each entry is a file that you can edit.
    """
    if ctx.invoked_subcommand is not None:
        return
    queue, known = QueueFolder().read(), notes.read()
    if as_json:
        say(json.dumps([_as_json(name, entry, known) for name, entry in queue.entries.items()]))
        return
    say(_table(queue, known, time.time()))
    for mistake in queue.mistakes.values():
        say(mistake, err=True)
    if warning := _agent_warning(known, queue):
        say(warning, err=True)


def _agent_warning(known: AgentNotes, queue: Queue) -> str:
    """Return what is wrong with the agent, and what to do; empty if nothing is."""
    if not Holder(known.pid, known.create_time, known.uptime_at_start).is_alive():
        return "No agent runs: `trainerd agent` trains the queue." if queue.entries else ""
    if known.version != __version__:
        return f"The agent is trainerd {known.version}, and this is {__version__}: stop the agent, and start it again."
    return ""


def _table(queue: Queue, known: AgentNotes, now: float) -> str:
    if not queue.entries:
        return "The queue is empty. `trainerd queue add CONFIG` adds a run."
    rows = [_HEAD, *(_row(name, entry, known.entries.get(name), now) for name, entry in queue.entries.items())]
    if not any(row[3] for row in rows[1:]):
        rows = [(*row[:3], *row[4:]) for row in rows]
        return "\n".join(lines(rows, {0, 1, 4, 5}))
    return "\n".join(lines(rows, _LEFT))


def _row(name: str, entry: QueueEntry, known: EntryNotes | None, now: float) -> tuple[str, ...]:
    progress, why = _progress(entry, known)
    state = RunReader(Path(entry.logdir)).read().state
    gpus = ",".join(map(str, progress.gpus)) or str(entry.gpus or "")
    step = f"{state.step:,}" + (f" of {state.end:,}" if state.end else "") if state is not None else ""
    until = until_text(known.until, now) if known is not None else ""
    return name, str(progress.stage), str(entry.priority), gpus, step, until, why


def _progress(entry: QueueEntry, known: EntryNotes | None) -> tuple[EntryProgress, str]:
    """Return the progress of an entry, and why it waits; the agent may not have seen it yet."""
    if known is None or known.progress.since < entry.since:
        return EntryProgress(), "the agent has not seen it yet"
    if entry.paused and not known.progress.stage.is_on:
        return replace(known.progress, stage=Stage.PAUSED), known.why
    return known.progress, known.why


def _as_json(name: str, entry: QueueEntry, known: AgentNotes) -> dict[str, Any]:
    found = known.entries.get(name)
    progress, why = _progress(entry, found)
    about = {"stage": str(progress.stage), "why": why, "until": found.until if found is not None else None}
    return {"name": name, **entry.__dict__, **about, "gpus_given": progress.gpus, "failures": progress.failures}


@command.command(
    "add",
    cls=CommandWithExamples,
    examples={
        "trainerd queue add --config digits.toml": "Add a run at the end of the queue.",
        "trainerd queue add train.py --adopt --name first": "Add a script.",
        "trainerd queue add -c tune.toml --after digits": "Add a run that starts when `digits` is done.",
    },
    exits={64: "The name or the run is in the queue already.", 78: "The config is wrong."},
)
@click.option("--name", help="Its name in the queue. Default: the run's.")
@click.option(
    "--priority",
    type=click.IntRange(-1000, 1000),
    default=0,
    show_default=True,
    help="A run with a higher priority takes the place of one with a lower one, and gives it back.",
)
@click.option("--gpus", type=Whole(0, 1024), help="How many GPUs it gets. Default: 1 if the agent has any.")
@click.option("--after", default="", metavar="NAME", help="Start when this one is done.")
@click.option(
    "--retries", type=Whole(0, 1024), default=0, show_default=True, help="How often to start it again after a failure."
)
@options.of_queue
def command_add(run: RunOptions, name: str | None, priority: int, gpus: int | None, after: str, retries: int) -> None:
    """Add a run to the queue. The agent trains it when it may and there is room, and resumes it after a reboot."""
    config = run.overrides()(options.load_config(run.config_path))
    if config.path is None:
        raise UsageError("there is no trainerd.toml here: name a config or a script.")
    known = notes.read()
    need = gpus if gpus is not None else min(1, len(known.gpus))
    if known.version and need > len(known.gpus):
        raise UsageError(f"--gpus {need}: the agent has {len(known.gpus)}.")
    found = name if name is not None else RunIdentity(config.rundir, config.name or "").own_name
    try:
        check_name(found)
    except ValueError as error:
        raise UsageError(f"--name {found}: {error}.") from None
    entry = QueueEntry(
        config=str(config.path),
        logdir=str(absolute(config.rundir)),
        folder=os.getcwd() if is_script(config.path) else str(config.folder),  # noqa: PTH109
        priority=priority,
        gpus=need,
        after=after,
        retries=retries,
        max_steps=run.max_steps,
        adopt=config.script.adopt,
        arguments=config.script.arguments,
    )
    QueueFolder().add(found, entry)
    say(f"added {found}. `trainerd queue` shows when it trains.")
    if warning := _agent_warning(known, Queue({found: entry})):
        say(warning, err=True)


@command.command(
    "move",
    cls=CommandWithExamples,
    examples={
        "trainerd queue move digits": "Put a run in front of all of its priority.",
        "trainerd queue move digits --before mnist": "Put it in front of another one.",
        "trainerd queue move digits --priority 2": "Give it another priority.",
    },
)
@click.argument("name")
@click.option("--before", default="", metavar="NAME", help="In front of this one. Default: of all of its priority.")
@click.option("--priority", type=click.IntRange(-1000, 1000), help="The new priority.")
def command_move(name: str, before: str, priority: int | None) -> None:
    """Change when a run trains: its priority, or its place among equal priorities."""
    queue = QueueFolder()
    if priority is not None:
        queue.change(name, lambda entry: replace(entry, priority=priority))
    if before or priority is None:
        queue.move(name, before)
    say(f"moved {name}")


@command.command(
    "pause",
    cls=CommandWithExamples,
    examples={
        "trainerd queue pause digits": "Pause a run, and keep its place.",
        "trainerd queue pause --all": "Pause all runs of the queue.",
    },
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="All runs of the queue.")
def command_pause(names: tuple[str, ...], every: bool) -> None:
    """Pause runs of the queue. The agent does not start them until `trainerd queue resume`."""
    queue = QueueFolder()
    for name in _chosen(queue, names, every=every):
        queue.change(name, lambda entry: replace(entry, paused=True))
        say(f"paused {name}")


@command.command(
    "resume",
    cls=CommandWithExamples,
    examples={
        "trainerd queue resume digits": "Have a paused run wait for its turn again.",
        "trainerd queue resume --all": "The same for all runs that are paused.",
    },
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="All runs that are paused.")
def command_resume(names: tuple[str, ...], every: bool) -> None:
    """Have runs wait for their turn again: runs that are paused, or have failed, or are done."""
    queue, known = QueueFolder(), notes.read()
    for name in _chosen(queue, names, every=every):
        entry = queue.read().entries[name] if every else None
        if entry is not None and _progress(entry, known.entries.get(name))[0].stage is not Stage.PAUSED:
            continue
        queue.resume(name)
        say(f"{name} waits for its turn")


def _chosen(queue: QueueFolder, names: tuple[str, ...], *, every: bool) -> list[str]:
    if bool(names) == every:
        raise UsageError("name a run of the queue, or give --all.")
    return list(queue.read().entries) if every else list(names)


@command.command(
    "remove",
    cls=CommandWithExamples,
    examples={
        "trainerd queue remove digits": "Remove a run. If it trains, it continues.",
        "trainerd queue remove --done": "Remove those that are done.",
    },
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--done", is_flag=True, help="All that are done.")
def command_remove(names: tuple[str, ...], done: bool) -> None:
    """Remove runs from the queue. The runs themselves stay, and what trains continues."""
    if bool(names) == done:
        raise UsageError("name a run of the queue, or give --done.")
    queue, known = QueueFolder(), notes.read()
    entries = queue.read().entries
    found = [
        each for each, entry in entries.items() if _progress(entry, known.entries.get(each))[0].stage is Stage.DONE
    ]
    for name in found if done else names:
        queue.remove(name)
        say(f"removed {name}")
    if done and not found:
        say(f"none of {counted(len(entries), 'run')} is done")
