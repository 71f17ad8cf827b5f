"""Checks that evaluations and summaries do not change the state: the training would depend on when they run."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from trainerd.checkpoints.snapshot import Snapshot
from trainerd.errors import JobError
from trainerd.loop.contract import Model

log = logging.getLogger(__name__)

SHARE = 0.01  # of what is checked, that the look may cost


class StateCheck:
    """Checks each of them as long as it changes nothing: one may change something at its third call.

    Args:
      refuse: whether such a change is an error: the run is to repeat exactly.
    """

    def __init__(self, *, refuse: bool) -> None:
        self._refuse = refuse
        self._reported = set[str]()
        self._secs: dict[str, float] = {}  # that the last check took

    def compare(self, what: str, before: Snapshot, session: Model, took: float, cost: float) -> None:
        """Check the state, if that costs little. If a change is an error, check it the first time in any case.

        Args:
          what: what was done.
          before: the state before it.
          session: the model after it.
          took: how many seconds it has taken.
          cost: how many seconds a snapshot takes.

        Raises:
          JobError: the state has changed, and that is an error.
        """
        is_cheap = max(2 * cost, self._secs.get(what, 0.0)) <= SHARE * took
        if what in self._reported or not (is_cheap or (self._refuse and what not in self._secs)):
            return
        begun = time.monotonic()
        if require_unchanged(what, before, session, refuse=self._refuse):
            self._reported.add(what)
        self._secs[what] = time.monotonic() - begun


@contextlib.contextmanager
def unchanged(what: str, session: Model, *, refuse: bool) -> Iterator[None]:
    """Check that the block does not change the state; see `require_unchanged`."""
    before = session.snapshot()
    try:
        yield
        require_unchanged(what, before, session, refuse=refuse)
    finally:
        before.release()


def require_unchanged(what: str, before: Snapshot, session: Model, *, refuse: bool) -> bool:
    """Warn of what has changed; return whether something has.

    Raises:
      JobError: something has, and `refuse` says that this is an error.
    """
    after = session.snapshot()
    try:
        changed = before.first_change(after)
    finally:
        after.release()
    if changed is None:
        return False
    text = (
        f"{what} changed {changed}. What is trained then depends on when it runs. Call the model with training=False, "
        "draw no numbers from a generator of the state, and read no batch from the training's input. Change training "
        "state only in the step"
    )
    if refuse:
        raise JobError(f"deterministic = true, and {text}", step=session.step, sound=False)
    log.warning("%s", text, extra={"event": "changes-state"})
    return True
