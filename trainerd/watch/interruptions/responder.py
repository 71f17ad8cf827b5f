"""The response to an interruption: it asks all runs, waits for their answers, and reports them."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainerd.errors import NotRunningError, StorageError, TrainerdError
from trainerd.rundir.request_files import WATCHER
from trainerd.rundir.requests.pending_request import PendingRequest
from trainerd.rundir.state import Phase, State, read_state
from trainerd.text import counted, printable, seconds
from trainerd.watch.ask import Action, ask
from trainerd.watch.delivery.notice import Notice
from trainerd.watch.interruptions.interruption import MachineInterruption
from trainerd.watch.run_reader import RunView

log = logging.getLogger(__name__)

POLL_SECS = 0.05
_EVENT = {"event": "interruption"}
_DONE = {"save": "saved", "pause": "paused"}


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run.

    Attributes:
      run: its name.
      step: the step that is on disk; None if the request failed.
      error: why it failed; empty otherwise.
    """

    run: str
    step: int | None
    error: str = ""


class Responder:
    """Asks runs for saves and pauses. Several threads may use it at once.

    Args:
      runs: reads all runs.
      report: takes the notice for a person.
      host: the name of this machine, for the notice.
      clock: seconds since 1970 (UTC).
      timer: seconds on a clock that is never set.
      sleep: waits so many seconds.
    """

    def __init__(
        self,
        runs: Callable[[], Sequence[RunView]],
        report: Callable[[Notice], None],
        host: str = "",
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._runs, self._report, self._host = runs, report, host or socket.gethostname()
        self._clock, self._timer, self._sleep = clock, timer, sleep
        self._pausing: dict[Path, PendingRequest] = {}
        self._lock = threading.Lock()

    def respond(self, interruption: MachineInterruption, action: Action) -> list[RunOutcome]:
        """Ask all runs, wait until each has answered or the time is over, and report that.

        Returns:
          The outcome of each run that trains, by name.
        """
        deadline = self._timer() + interruption.secs
        within = seconds(interruption.secs)
        log.info("%s: asking all runs to %s within %s", interruption.title, action, within, extra=_EVENT)
        outcomes, waiting = self._ask(interruption, action)
        while waiting and self._timer() < deadline:
            found = [(run, pending, self._outcome(run, pending)) for run, pending in waiting]
            outcomes += [outcome for _, _, outcome in found if outcome is not None]
            waiting = [(run, pending) for run, pending, outcome in found if outcome is None]
            if waiting:
                self._sleep(POLL_SECS)
        outcomes += [RunOutcome(run.name, None, f"no answer within {within}{_doing(run)}") for run, _ in waiting]
        outcomes.sort(key=lambda outcome: outcome.run)
        self._tell(interruption, action, outcomes)
        return outcomes

    def _ask(
        self, interruption: MachineInterruption, action: Action
    ) -> tuple[list[RunOutcome], list[tuple[RunView, PendingRequest]]]:
        """Ask each run. Return the outcomes of those that cannot be asked, and the requests to the others."""
        outcomes, asked = list[RunOutcome](), list[tuple[RunView, PendingRequest]]()
        for run in (run for run in self._runs() if run.is_running):
            try:
                asked.append((run, self._request(run, action, f"{WATCHER}: {interruption.title}")))
            except NotRunningError:  # it has ended since, or trains on another machine
                continue
            except (TrainerdError, OSError) as error:
                outcomes.append(RunOutcome(run.name, None, str(error)))
        return outcomes, asked

    def _request(self, run: RunView, action: Action, why: str) -> PendingRequest:
        """Return the request to a run: the one that it has if it is pausing already."""
        with self._lock:
            path = run.rundir.path
            before = self._pausing.get(path)
            if before is not None and before.holder.is_alive():
                return before
            pending = ask(run.rundir, action, why)
            if action == "pause":
                self._pausing[path] = pending
            return pending

    def _outcome(self, run: RunView, pending: PendingRequest) -> RunOutcome | None:
        """Return the outcome of a run; None while it has not answered."""
        try:
            answer = pending.look(POLL_SECS)
        except (StorageError, OSError) as error:  # it may pass, and the other runs are waited for meanwhile
            log.debug("%s: %s", run.name, error)
            return None
        except NotRunningError as error:  # a run that paused or finished meanwhile has saved
            state = _state(run)
            if state is not None and state.phase in (Phase.PAUSED, Phase.FINISHED):
                return RunOutcome(run.name, state.step)
            return RunOutcome(run.name, None, str(error))
        if answer is None:
            return None
        return RunOutcome(run.name, answer.step, "" if answer.step is not None else answer.error or "it gave no reason")

    def _tell(self, interruption: MachineInterruption, action: Action, outcomes: Sequence[RunOutcome]) -> None:
        """Log the outcomes, and report them if there are any."""
        if not outcomes:
            log.info("%s: nothing trains", interruption.title, extra=_EVENT)
            return
        saved = sum(outcome.step is not None for outcome in outcomes)
        title = f"{interruption.title}: {saved} of {counted(len(outcomes), 'run')} {_DONE[action]}"
        lines = [printable(_line(outcome, action)) for outcome in outcomes]
        is_saved = saved == len(outcomes)
        log.log(logging.INFO if is_saved else logging.ERROR, "%s. %s", title, "; ".join(lines), extra=_EVENT)
        kind = interruption.kind if is_saved else "save failed"
        notice = Notice(kind, "", interruption.key, self._clock(), f"{self._host}: {title}", "\n".join(lines))
        try:
            self._report(notice)
        except StorageError as error:
            log.error("%s", error, extra={"event": "watch-failed"})


def _state(run: RunView) -> State | None:
    """Return the state of a run now; None if it cannot be read."""
    with contextlib.suppress(StorageError, OSError):
        return read_state(run.rundir.state)
    return None


def _doing(run: RunView) -> str:
    """Return what a run does now, or why that cannot be read, for the end of a sentence."""
    try:
        state = read_state(run.rundir.state)
    except (StorageError, OSError) as error:
        return f"; {str(error).rstrip('.')}"
    return f"; it is {state.phase} at step {state.step:,}" if state is not None else ""


def _line(outcome: RunOutcome, action: Action) -> str:
    name = " ".join(outcome.run.split())
    if outcome.step is None:
        return f"{name}: not {_DONE[action]}: {outcome.error}"
    return f"{name}: {_DONE[action]} at step {outcome.step:,}"
