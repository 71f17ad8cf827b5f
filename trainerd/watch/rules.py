"""The rules that decide which notices a run gives, and in which words. Pure: its callers read files and clocks."""

from __future__ import annotations

import re

from trainerd.copies.status import CopyStatus
from trainerd.rundir.request_files import AGENT
from trainerd.rundir.run_events import Event, EventKind
from trainerd.rundir.state import Phase, State
from trainerd.text import next_start, printable, seconds
from trainerd.watch.delivery.notice import Notice
from trainerd.watch.settings import NoticeKind

_KINDS: dict[EventKind, tuple[NoticeKind, str]] = {
    EventKind.START: ("started", "started"),
    EventKind.RESUME: ("resumed", "resumed"),
    EventKind.PAUSE: ("paused", "paused"),
    EventKind.FINISH: ("finished", "finished"),
    EventKind.FAIL: ("failed", "failed"),
    EventKind.KILL: ("killed", "was killed"),
    EventKind.REBOOT: ("reboot", "the machine was rebooted"),
    EventKind.HANG: ("hang", "hangs"),
    EventKind.SAVE_FAILED: ("save failed", "a save failed"),
    EventKind.QUARANTINE: ("quarantine", "a checkpoint does not verify"),
    EventKind.ROLLBACK: ("rollback", "went back"),
    EventKind.CHANGE: ("change", "was changed"),
    EventKind.EVALUATION: ("evaluation", "was evaluated"),
    EventKind.BEST: ("best", "has a new best"),
}
_NO_NUMBER = re.compile(r"\bthe loss became (nan|-?inf)\b|\bholds a NaN\b")


def of_event(run: str, event: Event, state: State | None) -> Notice:
    """Return the notice of an event.

    Args:
      run: the run's name.
      event: what happened.
      state: the run's state now, for its metrics; None if there is none.
    """
    kind, words = _KINDS[event.kind]
    if event.kind is EventKind.FINISH and event.said.startswith("the target "):
        kind, words = "target", "has reached its target"
    if event.kind is EventKind.PAUSE and f"({AGENT}: " in event.said:
        kind, words = "waiting", "waits"
    if event.kind in (EventKind.FAIL, EventKind.ROLLBACK) and _NO_NUMBER.search(event.said):
        kind, words = "nan", f"{words}, since it came to NaN or infinity,"
    is_end = event.kind in (EventKind.FINISH, EventKind.PAUSE)
    figures = state.line() if is_end and state is not None and state.step == event.step else ""  # it may be late
    # All runs of a machine have the event of a reboot at the same moment. The key of a kill is that of `of_kill`.
    key = f"{event.kind} {event.at} {event.step}" + (f" {run}" if event.kind is EventKind.REBOOT else "")
    step = f" at step {event.step:,}" if event.step is not None else ""
    return _notice(kind, run, key, event.at, f"{words}{step}", event.said, figures)


def of_kill(run: str, state: State, booted_at: float) -> Notice:
    """Return the notice of a run whose process has gone without a report.

    The next start records the same event, so the notice has that event's key.

    Args:
      run: the run's name.
      state: the last state that it wrote.
      booted_at: when the machine was started, in seconds since 1970 (UTC).
    """
    resumes = next_start(state.resume_step)
    why = "The machine was rebooted meanwhile. " if state.is_of_this_machine and state.at < booted_at else ""
    said = f"{why}{state.left_as.capitalize()}. The next start {resumes}."
    title = f"was killed at step {state.step:,} or later"
    return _notice("killed", run, f"{EventKind.KILL} {state.at} {state.step}", state.at, title, said)


def of_no_progress(run: str, state: State, secs: float, now: float) -> Notice:
    """Return the notice of a run that trains, and has made no step for so many seconds."""
    title = f"has made no step for {seconds(secs)}"
    said = f"It is {state.phase} at step {state.step:,}, pid {state.pid}."
    return _notice("no progress", run, f"no progress {state.step} {state.create_time}", now, title, said)


def of_copy_behind(run: str, copy: CopyStatus, secs: float, now: float) -> Notice:
    """Return the notice of a run whose newest checkpoint is not copied, and nothing was for so many seconds."""
    newest = f"The newest copy is of step {copy.step:,}." if copy.step is not None else "No checkpoint is copied."
    title = f"has copied nothing for {seconds(secs)}"
    return _notice(
        "copy behind", run, f"copy behind {copy.step} {copy.copied_at}", now, title, newest, copy.error or ""
    )


def is_training(state: State, is_running: bool) -> bool:
    """Return whether a run is to make steps."""
    return is_running and state.phase in (Phase.TRAINING, Phase.SAVING)


def _notice(kind: NoticeKind, run: str, key: str, at: float, title: str, *body: str) -> Notice:
    said = "\n".join(printable(part) for part in body if part)
    return Notice(kind, run, key, at, printable(" ".join(f"{run}: {title}".split())), said)
