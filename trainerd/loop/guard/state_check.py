"""Checks that evaluations and summaries do not change the state: the training would depend on when they run."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from trainerd.checkpoints.snapshot import Snapshot
from trainerd.errors import JobError
from trainerd.loop.contract import Model

log = logging.getLogger(__name__)

SHARE = 0.01  # of what is looked at, that the look may cost


class StateCheck:
    """Looks once at each.

    Args:
      refuse: whether such a change is an error: the run is to repeat exactly.
    """

    def __init__(self, *, refuse: bool) -> None:
        self._refuse = refuse
        self._looked_at = set[str]()

    def look(self, what: str, before: Snapshot, session: Model, took: float, cost: float) -> None:
        """Check the state, if that costs little or a change is an error.

        Args:
          what: what was done.
          before: the state before it.
          session: the model after it.
          took: how many seconds it has taken.
          cost: how many seconds a snapshot takes.

        Raises:
          JobError: the state has changed, and that is an error.
        """
        if what in self._looked_at or not (self._refuse or 2 * cost <= SHARE * took):
            return
        self._looked_at.add(what)
        require_unchanged(what, before, session, refuse=self._refuse)


@contextlib.contextmanager
def unchanged(what: str, session: Model, *, refuse: bool) -> Iterator[None]:
    """Check that the block does not change the state; see `require_unchanged`."""
    before = session.snapshot()
    try:
        yield
        require_unchanged(what, before, session, refuse=refuse)
    finally:
        before.release()


def require_unchanged(what: str, before: Snapshot, session: Model, *, refuse: bool) -> None:
    """Name the variable that has changed, if one has.

    Raises:
      JobError: one has, and `refuse` says that this is an error.
    """
    after = session.snapshot()
    try:
        name = before.first_change(after)
    finally:
        after.release()
    if name is None:
        return
    text = (
        f"{what} changes the state: the variable {name!r} is another after it. What is trained then depends on when it "
        "is made. Call the model with training=False, draw no numbers from a generator of the state, and read no batch "
        "from the training's input"
    )
    if refuse:
        raise JobError(f"deterministic = true, and {text}", step=session.step, sound=False)
    log.warning("%s", text, extra={"event": "changes-state"})
