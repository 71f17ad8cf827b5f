"""Calls `CheckpointSaverListener`s for a session's checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainerd.run.attached import AttachedRun


class SavingListeners:
    """Calls `before_save` before the state is taken, and `after_save` when it is on disk, before the next step.

    After a pause they are not called: the next start resumes from that checkpoint, and calls `resumed`, if they have
    it.

    Args:
      listeners: `CheckpointSaverListener`s, called in this order.
    """

    def __init__(self, listeners: Sequence[Any]) -> None:
        self._listeners = listeners
        self._begun: int | None = None  # the step of a checkpoint that they were not called for yet

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def begin(self) -> None:
        """Call `begin` of each: the session is about to be made."""
        for listener in self._listeners:
            listener.begin()

    def before_save(self, session: Any, step: int) -> None:
        """Call `before_save` of each: the state of this step is about to be taken."""
        for listener in self._listeners:
            listener.before_save(session, step)

    def saving(self, step: int) -> None:
        """Record that a checkpoint of this step is begun."""
        self._begun = step

    def after_save(self, session: Any, attached: AttachedRun) -> bool:
        """Call them for a checkpoint of this boundary, when it is on disk. Returns whether one wants to stop."""
        step, self._begun = self._begun, None
        if step is None or not self._listeners or attached.is_paused:
            return False
        attached.wait()
        if not attached.saved_step == step == attached.step:
            return False
        wishes = [listener.after_save(session, step) for listener in self._listeners]  # all of them are called
        return any(wishes)

    def resumed(self, session: Any, attached: AttachedRun) -> None:
        """Call `resumed` of each that has it, if the session was restored."""
        for listener in self._listeners:
            if hasattr(listener, "resumed") and attached.resumed_step is not None:
                listener.resumed(session, attached.resumed_step)

    def end(self, session: Any, attached: AttachedRun) -> bool:
        """Call them for the last checkpoint, and then `end` of each. Returns whether one wants to stop."""
        wishes = self.after_save(session, attached)
        for listener in self._listeners:
            listener.end(session, attached.step)
        return wishes
