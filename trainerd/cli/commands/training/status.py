"""`trainerd status`: how a run is doing, from its state.json."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import PurePath

import click

from trainerd.agent.shown import by_run
from trainerd.cli import options
from trainerd.cli.advice import how_to_start
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.copies.status import CopyStatus, read_copy_status, snapshot_at
from trainerd.errors import NotRunningError, StorageError
from trainerd.rundir import run_events
from trainerd.rundir.lock import find_removed, read_holder, removed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import Event
from trainerd.rundir.state import DAMAGED, UNMANAGED, Phase, State, is_running, read_state
from trainerd.system.durable_files import free_bytes, storage
from trainerd.text import counted, figure, next_start, printable, seconds, size

_OLD_SECS = 60.0  # an older state is shown with its age: a long step, a hang, or no room
_EVENTS = 3
_ROOM = 1 << 16  # bytes: with less than that state.json itself may not be written


@click.command(
    "status",
    cls=CommandWithExamples,
    examples={
        "trainerd status": "Show the run of the current folder.",
        "trainerd status digits --watch": "Show the run `digits` every second.",
        "trainerd status runs/digits --json": "Print the fields of a run directory's state.json.",
    },
    exits={0: "The run is known, whatever its phase.", 69: "Nothing has been trained in the run directory yet."},
)
@options.of_one_argument
@click.option("-w", "--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the fields of state.json, `running` and `copy`, on one line."
)
def command(run: options.RunOptions, watch: bool, as_json: bool) -> None:
    """Show how a run is doing: phase, step, metrics, rate, what is saved on disk, in memory and in the copy.

    It works while the run trains, after it has ended, and after it was killed.
    """
    rundir = options.asked_rundir(options.find_rundir(run))
    while True:
        state, running = look(rundir, lambda: how_to_start(rundir, run, "run"))
        if watch and not as_json:
            click.clear()
        copy = read_copy_status(rundir)
        if as_json:
            copied = asdict(copy) if copy is not None else None
            say(json.dumps(state.to_json() | {"running": running, "copy": copied}))
        else:
            saved_at = snapshot_at(rundir, state.last_checkpoint) if copy is not None else None
            say(text(state, running, _last_events(rundir), copy, saved_at, _queue_line(rundir)))
        if not watch:
            return
        time.sleep(1.0)


def look(rundir: RunDirectory, how_to_start: Callable[[], str]) -> tuple[State, bool]:
    """Return the state of a run, and whether a process trains it; `how_to_start` says what would train it.

    Raises:
      NotRunningError: nothing has ever been trained there.
    """
    state = read_state(rundir.state)
    running = is_running(state, is_here=read_holder(rundir) is not None, now=time.time())
    if state is None and not running and (pid := find_removed(rundir)) is not None:
        return State(Phase.TRAINING, pid, warnings=[removed(rundir)], logdir=str(rundir.path)), True
    if state is None and not running:
        from trainerd.checkpoints import catalogue  # half as slow again, and seldom wanted
        from trainerd.checkpoints.manifest import FINISH

        saved = catalogue.newest(rundir)
        is_damaged = os.path.lexists(rundir.state)
        if saved is None and is_damaged:
            raise NotRunningError(
                f"{rundir.state} is damaged, and there is no checkpoint yet. {how_to_start()} starts from step 0."
            )
        if saved is None:
            raise NotRunningError(f"nothing has been trained in {rundir.path} yet. {how_to_start()} starts it.")
        # state.json is gone or damaged: what the manifests say is all there is to say.
        phase = Phase.FINISHED if saved.reason == FINISH else Phase.PAUSED
        state = State(warnings=[DAMAGED] if is_damaged else [], logdir=str(rundir.path), at=saved.at)
        state = state.at_checkpoint(catalogue.as_last(rundir, saved), saved.metrics, saved.measured, phase)
        return _with_rollback(state, rundir), False
    state = _here(state or State(), rundir)
    return (_with_full_disk(state, rundir) if running else _with_rollback(state, rundir)), running


def _here(state: State, rundir: RunDirectory) -> State:
    """Return the state with the paths of this run directory, which may have been moved or copied since."""
    last = state.last_checkpoint
    if last is not None and str(PurePath(last.path).parent) == state.logdir:  # that of a worker is in the chief's
        last = replace(last, path=str(rundir.path / PurePath(last.path).name))
    return replace(state, logdir=str(rundir.path), last_checkpoint=last)


def _with_rollback(state: State, rundir: RunDirectory) -> State:
    """Warn of a rollback that was cut short: the next start resumes from its target."""
    from trainerd.history import rollback  # seldom wanted, and half as slow again

    if not rollback.is_under_way(rundir):
        return state
    return replace(state, warnings=[*state.warnings, f"a rollback was cut short. {rollback.FINISHES}"])


def _with_full_disk(state: State, rundir: RunDirectory) -> State:
    """Warn of a full disk: a process that has no room for state.json cannot do so itself."""
    with storage(f"read {rundir.path}"):
        if free_bytes(rundir.path) >= _ROOM:
            return state
    full = f"no space is left in {rundir.path}: neither a checkpoint nor state.json can be written. Free some."
    return replace(state, warnings=[*state.warnings, full])


def text(
    state: State,
    running: bool,
    events: Sequence[Event] = (),
    copy: CopyStatus | None = None,
    saved_at: float | None = None,
    queue: str = "",
) -> str:
    """Return a state for a person, with events, what is copied (see `CopyStatus.is_behind`), and the queue's word."""
    rows = [("name", state.name)] if state.name else []
    rows += [("tags", ", ".join(state.tags))] if state.tags else []
    rows += [("params", state.shown_params())] if state.params else []
    rows += [("phase", describe(state, running)), *[("queue", queue)] * bool(queue)]
    of = f" of {state.end:,}" if state.end else ""
    rows.append(("step", f"{state.step:,}{of}"))
    rows += state.shown_metrics().items()
    if (done := state.evaluations) is not None:
        best = ", ".join(f"{name} {figure(value)}" for name, value in done.best.items())
        rows.append(("evaluated", counted(done.count, "checkpoint")))
        rows += [("best", f"step {done.best_step}: {best}")] if done.best_step is not None else []
    if running and state.at and (old := time.time() - state.at) >= _OLD_SECS:
        rows.append(("as of", f"{seconds(old)} ago"))
    if running and state.steps_per_sec:
        rows.append(("rate", f"{state.steps_per_sec:,.4g} steps/s"))
    if running and state.eta_secs is not None:
        rows.append(("left", seconds(state.eta_secs)))
    if (saved := state.last_checkpoint) is not None:
        age = seconds(max(0.0, time.time() - saved.at))
        rows.append(("saved", f"step {saved.step:,}, {age} ago ({saved.reason}, {size(saved.bytes)})"))
    if running and (step := state.memory_step) is not None:
        rows.append(("memory tier", f"step {step:,}, {seconds(max(0.0, time.time() - state.memory_tier.at))} ago"))
    if running and state.memory_tier.off:
        rows.append(("memory tier", f"nothing is saved to it now: {state.memory_tier.off}"))
    if copy is not None:
        rows.append(("copied", copy.line(saved, time.time(), saved_at)))
        rows += [("copy error", copy.error)] if copy.error else []
    if running and state.save_model_secs is not None:
        rows.append(("saves", f"every {seconds(state.save_model_secs)}"))
    if running and state.saving is not None:
        rows.append(("saving", f"step {state.saving:,}"))
    if running:
        rows.append(("memory used", size(state.memory_bytes)))
        rows += [("device", str(device)) for device in state.devices]
        rows += [(f"worker {worker.rank}", worker.line(time.time())) for worker in state.workers]
    rows += [("warning", warning) for warning in state.warnings]
    if state.error:
        rows.append(("error", state.error))
    if state.failure is not None:
        rows.append(("failure", f"{state.failure}, while {state.failure.phase}"))
    if shares := state.goodput.percent():
        rows.append(("time", ", ".join(f"{kind} {share:.1f} %" for kind, share in shares.items() if share)))
    if state.goodput.steps_again:
        rows.append(("again", f"{counted(state.goodput.steps_again, 'step')}, trained again after a crash"))
    rows += [("job", state.job), ("logdir", state.logdir)]
    rows += [("notes", state.notes)] if state.notes else []
    rows += [("event", _line(event)) for event in events]
    width = max(len(name) for name, _ in rows)
    # What a job writes may hold line breaks, and must not look like lines of trainerd's.
    return "\n".join(f"{name.replace(chr(10), ' '):<{width}}  {' '.join(value.splitlines())}" for name, value in rows)


def _queue_line(rundir: RunDirectory) -> str:
    """Return what the queue says of the run; empty if it is not in the queue, or that cannot be read."""
    with contextlib.suppress(StorageError):
        found = by_run().get(rundir.path)
        return found.line(time.time()) if found is not None else ""
    return ""


def _last_events(rundir: RunDirectory) -> list[Event]:
    """Return the last events. Without them the state is shown all the same: `trainerd events` says what is wrong."""
    try:
        return run_events.notable(run_events.read(rundir))[-_EVENTS:]
    except StorageError:
        return []


def _line(event: Event) -> str:
    step = f" at step {event.step:,}" if event.step is not None else ""
    said = f": {' '.join(event.said.split())}" if event.said else ""
    return f"{event.kind}{step}, {seconds(max(0.0, time.time() - event.at))} ago{said}"


def describe(state: State, running: bool) -> str:
    """Return the phase, and what to know of the process."""
    if running:
        where = f" on {printable(state.host)}" if state.is_elsewhere(time.time()) else ""
        what = f": {UNMANAGED}" if state.phase is Phase.UNMANAGED else ""
        return f"{state.phase} (pid {state.pid}{where}){what}"
    if state.phase.is_over:
        return str(state.phase)
    return f"not running: {state.left_as}; the next start {next_start(state.resume_step)}"
