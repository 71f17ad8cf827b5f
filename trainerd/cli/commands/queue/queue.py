"""`trainerd queue`: the runs that the agent trains."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from trainerd.agent import notes
from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import Stage
from trainerd.agent.queue_folder import Queue, QueueFolder
from trainerd.agent.shown import ShownEntry, shown, until_text, warning
from trainerd.cli import options
from trainerd.cli.app import CommandWithExamples, GroupWithExamples
from trainerd.cli.columns import lines
from trainerd.cli.options import RunOptions
from trainerd.cli.queue_options import QueueOptions, of_entry
from trainerd.cli.say import say
from trainerd.cli.usage import Whole
from trainerd.errors import UsageError
from trainerd.rundir.names import RunIdentity, check_name
from trainerd.rundir.runs import RunReader

_HEAD = ("run", "stage", "priority", "GPUs", "step", "until", "why")
_LEFT, _MAY_BE_EMPTY = {0, 1, 5, 6}, {3, 5, 6}


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
    entries = shown(queue, known)
    if as_json:
        say(json.dumps([each.to_json() for each in entries]))
        return
    say(_table(entries, time.time()))
    for mistake in [*queue.mistakes.values(), *filter(None, [warning(known, queue)])]:
        say(mistake, err=True)


def _table(entries: Sequence[ShownEntry], now: float) -> str:
    if not entries:
        return "The queue is empty. `trainerd queue add CONFIG` adds a run."
    rows = [_HEAD, *(_row(each, now) for each in entries)]
    empty = {column for column in _MAY_BE_EMPTY if not any(row[column] for row in rows[1:])}
    kept = [column for column in range(len(_HEAD)) if column not in empty]
    left = {number for number, column in enumerate(kept) if column in _LEFT}
    return "\n".join(lines([tuple(row[column] for column in kept) for row in rows], left))


def _row(each: ShownEntry, now: float) -> tuple[str, ...]:
    state = RunReader(Path(each.entry.logdir)).read().state
    gpus = ",".join(map(str, each.gpus)) or str(each.entry.gpus or "")
    step = f"{state.step:,}" + (f" of {state.end:,}" if state.end else "") if state is not None else ""
    until = until_text(each.until, now) if each.until is not None else ""
    return each.name, str(each.stage), str(each.entry.priority), gpus, step, until, each.why


@command.command(
    "add",
    cls=CommandWithExamples,
    examples={
        "trainerd queue add digits.toml": "Add a run at the end of the queue.",
        "trainerd queue add train.py --adopt --name first": "Add a script.",
        "trainerd queue add tune.toml --after digits --from best": "Add one that fine-tunes the best of `digits`.",
    },
    exits={64: "The name or the run is in the queue already.", 78: "The config is wrong."},
)
@click.option("--name", help="Its name in the queue. Default: the run's.")
@click.option("--after", default="", metavar="NAME", help="Start when this one is done.")
@click.option(
    "--from",
    "begin_at",
    default="",
    metavar="STEP|best|minimum",
    help="With --after: begin at this checkpoint of that run, as a fork of it.",
)
@of_entry
@options.of_queue
def command_add(run: RunOptions, place: QueueOptions, name: str | None, after: str, begin_at: str) -> None:
    """Add a run to the queue. The agent trains it when it may and there is room, and resumes it after a reboot."""
    config = run.overrides()(options.load_config(run.config_path, has_example=False))
    if begin_at and not after:
        raise UsageError(f"--from {begin_at}: name the run that it is of with --after.")
    known = notes.read()
    found = name if name is not None else RunIdentity(config.rundir, config.name or "").own_name
    try:
        check_name(found)
    except ValueError as error:
        raise UsageError(f"--name {found}: {error}.") from None
    entry = place.apply(QueueEntry.of(config), known)
    entry = replace(entry, after=after, begin_at=begin_at)
    QueueFolder().add(found, entry)
    say(f"added {found}. `trainerd queue` shows when it trains.")
    if lack := warning(known, Queue({found: entry})):
        say(lack, err=True)


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
@click.option("--priority", type=Whole(-1000, 1000), help="The new priority.")
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
@click.option("--all", "every", is_flag=True, help="All runs that are neither done nor failed.")
def command_pause(names: tuple[str, ...], every: bool) -> None:
    """Pause runs of the queue. The agent does not start them until `trainerd queue resume`."""
    queue = QueueFolder()
    for name in _chosen(queue, names, set(Stage) - {Stage.DONE, Stage.FAILED}, every=every):
        queue.pause(name)
        say(f"paused {name}")


@command.command(
    "resume",
    cls=CommandWithExamples,
    examples={
        "trainerd queue resume digits": "Have a paused run wait for its turn again.",
        "trainerd queue resume --failed": "The same for all runs that have failed.",
    },
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="All runs that are paused.")
@click.option("--failed", is_flag=True, help="All runs that have failed.")
def command_resume(names: tuple[str, ...], every: bool, failed: bool) -> None:
    """Have runs wait for their turn again: runs that are paused, or have failed, or are done."""
    if every and failed:
        raise UsageError("--all and --failed contradict each other. Give one.")
    queue, stage = QueueFolder(), Stage.FAILED if failed else Stage.PAUSED
    for name in _chosen(queue, names, {stage}, every=every or failed, flag="--all or --failed"):
        queue.resume(name)
        say(f"{name} waits for its turn")


def _chosen(
    queue: QueueFolder, names: tuple[str, ...], stages: set[Stage], *, every: bool, flag: str = "--all"
) -> list[str]:
    """Return the names that are given, or those of all entries in one of these stages."""
    if bool(names) == every:
        raise UsageError(f"name a run of the queue, or give {flag}.")
    entries = shown(queue.read(), notes.read())
    return [each.name for each in entries if each.stage in stages] if every else list(names)


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
    queue = QueueFolder()
    found = _chosen(queue, names, {Stage.DONE}, every=done, flag="--done")
    if done:  # a point of a sweep may train on while others do
        entries = shown(queue.read(), notes.read())
        trains = {each.entry.sweep for each in entries if each.stage not in (Stage.DONE, Stage.FAILED)} - {""}
        found = [each.name for each in entries if each.name in found and each.entry.sweep not in trains]
    for name in found:
        queue.remove(name)
        say(f"removed {name}")
    if not found:
        say("no run of the queue is done")
