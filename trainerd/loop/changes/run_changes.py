"""Changes the course of a run at a boundary: goes back to a checkpoint, sets a number, skips batches."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainerd.checkpoints import latest
from trainerd.checkpoints.lineage import BACK, SET, SKIP, Change
from trainerd.checkpoints.manifest import Manifest
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.schema import TroubleConfig
from trainerd.errors import JobError, StorageError, TrainerdError, UsageError
from trainerd.history import rollback
from trainerd.job.settable import is_learning_rate
from trainerd.loop import outcome
from trainerd.loop.changes.trouble import BadTurn
from trainerd.loop.checkpointer import Checkpointer
from trainerd.loop.contract import Model, Session
from trainerd.loop.outcome import Outcome
from trainerd.rundir import run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.requests import set_requests
from trainerd.rundir.requests.set_requests import SetRequest
from trainerd.rundir.run_events import EventKind

log = logging.getLogger(__name__)

_NOT_BACK = "the run did not go back"
_NOT_SET = "not set"


@dataclass
class RunChanges:
    """Changes the course of one run.

    Args:
      rundir: the run directory.
      store: its checkpoints.
      checkpointer: makes them.
      reporter: gets a warning for what cannot be done.
      model: what is trained.
      session: the same; None if it cannot be restored while it trains. Then a run that is to go back is paused, and its
        next start goes back.
      resume_from: restores the session from a checkpoint, and has everything resume from there.

    Attributes:
      next_change: the step of the boundary at which something is to be done next; None if nothing is.
    """

    _rundir: RunDirectory
    _store: CheckpointStore
    _checkpointer: Checkpointer
    _reporter: Reporter
    _model: Model
    _session: Session | None
    _resume_from: Callable[[Manifest], None]
    _ahead: list[Change] = field(default_factory=list)

    @property
    def next_change(self) -> int | None:
        """See the class."""
        return min((each.step for each in self._ahead), default=None)

    def resumed(self, found: Manifest) -> None:
        """Record that the run resumes from this checkpoint: what lies ahead in its lineage is still to be done."""
        self._ahead = [each for each in found.lineage if each.kind != BACK and each.step > found.step]

    # ------------------------------------------------------------------ what a person asks for

    def go_back(self) -> Outcome | None:
        """Go back to an earlier checkpoint, as the file `rollback` asks. The state of this boundary is saved first.

        If that is not possible, training continues where it is, and `status` shows why.

        Returns:
          The outcome of a run whose next start goes back; None if the run continues.

        Raises:
          DataError: the checkpoint does not fit the job.
          JobError: the state of this boundary must not be saved.
          StorageError: the rollback failed and could not be undone: the next start finishes it.
        """
        ids = list[str]()
        try:
            request = rollback.read_request(self._rundir)
            if request is None:
                return None
            ids = [request.id] * bool(request.id)
            if ids and not self._checkpointer.answers.take(ids):
                return self._served_before(request)
            rollback.require_target(self._rundir, request.target)
            self._store.keep_for_now(request.target.step if request.target.line is None else None)
            self._checkpointer.finish(self._model, "rollback", is_last=False)
            if self._session is None:
                log.info("the next start goes back to %s", request.target, extra={"event": "rollback"})
                self._checkpointer.answers.give(ids, request.target.step, None)
                return outcome.going_back(str(request.target))
            found = rollback.go_back(self._rundir, self._store, request, time.time())
        except (UsageError, StorageError) as error:
            self._store.keep_for_now(None)
            if isinstance(error, StorageError) and error.is_unfinished:
                raise
            with contextlib.suppress(StorageError):  # what fails for a while is asked again, and refused again
                rollback.withdraw(self._rundir)
            self._refuse(_NOT_BACK, ids, error)
            return None
        self._resume_from(found)
        self._store.keep_for_now(None)
        self._reporter.unwarn(_NOT_BACK)
        self._checkpointer.answers.give(ids, request.target.step, None)
        return None

    def _served_before(self, request: rollback.RollbackRequest) -> Outcome | None:
        """Serve a request that has come twice: its command saw no answer. Return as `go_back` does."""
        if self._session is None:
            return outcome.going_back(str(request.target))
        rollback.withdraw(self._rundir)
        return None

    def set_numbers(self) -> None:
        """Set the numbers that the file `set` names, and make a checkpoint of that."""
        for request in set_requests.take(self._rundir):
            ids = [request.id] * bool(request.id)
            if ids and not self._checkpointer.answers.take(ids):
                continue
            try:
                changes = [self._set(name, value, request) for name, value in request.values.items()]
            except UsageError as error:
                self._refuse(_NOT_SET, ids, error)
                continue
            self._reporter.unwarn(_NOT_SET)
            self._checkpointer.changed([*self._checkpointer.lineage, *changes], at=self._model.step)
            self._checkpointer.wait_for_save()
            self._checkpointer.start(self._model, "set", ids)

    def _set(self, name: str, value: float, request: SetRequest) -> Change:
        """Set one number.

        Raises:
          UsageError: it cannot be set.
        """
        if self._session is None:
            raise UsageError("a program that writes its own loop has no numbers that trainerd can set.")
        there = self._session.numbers()
        for wanted in request.values:  # all of them, or none
            if wanted not in there:
                raise UsageError(f"the job has no number {wanted!r} to set. {_known(list(there))}")
            if refusal := there[wanted].refusal(wanted, request.values[wanted]):
                raise UsageError(refusal)
        self._session.assign(name, value)
        now, step = self._session.numbers()[name].value, self._session.step
        said = f"{name} is {now:.7g}; it was {there[name].value:.7g}"  # as exact as float32 is
        log.info("after step %d %s", step, said, extra={"event": "set", "step": step})
        run_events.add(self._rundir, EventKind.CHANGE, said, step=step)
        return Change(SET, step, value, name)

    def _refuse(self, what: str, ids: list[str], error: TrainerdError) -> None:
        log.error("%s: %s", what, error, extra={"event": "refused"})
        self._reporter.unwarn(what)
        if not ids:  # else the answer has it
            self._reporter.warn(f"{what}: {error}")
        self._checkpointer.answers.give(ids, None, str(error))

    # ------------------------------------------------------------------ what trouble asks for

    def do_due(self, step: int) -> None:
        """Do what lies ahead in the lineage for this boundary, before anything else is done there."""
        self._checkpointer.know_more(self._do(step))

    def _do(self, step: int) -> dict[Change, Change]:
        """Do what lies ahead for this boundary. Returns the changes that are known better now."""
        due, known = [each for each in self._ahead if each.step == step], {}
        if not due or self._session is None:
            return {}
        self._ahead = [each for each in self._ahead if each.step != step]
        for each in due:
            if each.kind == SKIP:
                known[each] = each.with_elements(self._session.skip(int(each.value)))
            elif each.name not in self._session.numbers():
                log.warning("the job has no number %r now, so it is not set", each.name, extra={"event": "changed"})
                continue
            else:
                self._session.assign(each.name, each.value)
            log.warning("%s", known.get(each, each), extra={"event": "changed", "step": step})
        return known

    def roll_back(self, bad: BadTurn, config: TroubleConfig) -> None:
        """Go back to the last sound checkpoint, and do something else from there than before.

        Raises:
          JobError: there is nothing to go back to, or it was tried too often.
        """
        if self._session is None:
            raise _stopped(bad, "")
        self._checkpointer.wait_for_save()
        found = latest.newest_verified(self._rundir, self._store)
        if found is None:
            raise _stopped(bad, ", and there is no checkpoint to go back to (see `save_model_steps`)")
        tried = sum(each.kind == BACK and each.step == found.step for each in found.lineage)
        if tried >= config.attempts:
            why = f", after the run had gone back to step {found.step} {tried} times. To try from an earlier one: "
            raise _stopped(bad, f"{why}`trainerd rollback STEP`")
        log.warning("%s; rolling back to step %d", bad.what, found.step, extra={"event": "trouble", "step": bad.last})
        run_events.add(self._rundir, EventKind.ROLLBACK, f"{bad.what}: back to step {found.step}", step=found.step)
        self._resume_from(found)
        lineage = [*found.lineage, Change(BACK, found.step, bad.first, why=bad.what)]
        if bad.action == "skip":
            self._ahead = [each for each in lineage if each.kind != BACK and each.step > found.step]
            why = f"{bad.what}, attempt {tried + 1}"
            new = Change(SKIP, bad.first - 1, bad.last - bad.first + 1, why=why)
            self._ahead.append(new)  # it may be of this very boundary
            lineage.append(new)
            known = self._do(found.step)
            lineage = [known.get(each, each) for each in lineage]
        else:
            lineage += self._lower_learning_rates(found.step, config.learning_rate_factor)
        self._checkpointer.changed(lineage, at=found.step)
        self._checkpointer.finish(self._model, "trouble", is_last=False)

    def _lower_learning_rates(self, step: int, factor: float) -> list[Change]:
        assert self._session is not None
        changes = []
        for name, now in self._session.numbers().items():
            if is_learning_rate(name) and not now.fixed:
                lower = max(now.value * factor, min(now.value, now.minimum))
                self._session.assign(name, lower)
                changes.append(Change(SET, step, lower, name))
        if not changes:
            log.warning("the job has no learning rate that can be set: training continues with the same numbers")
        return changes


def _stopped(bad: BadTurn, why: str) -> JobError:
    return JobError(f"{bad.what}{why}. Check the learning rate and the data.", step=bad.last, sound=False)


def _known(names: Sequence[str]) -> str:
    if not names:
        return "Name variables in `settable` of the job."
    return f"It has {', '.join(sorted(names))}."
