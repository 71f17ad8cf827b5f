"""Keeps the state at the minima of the loss: a snapshot of the lowest boundary of a valley, until the loss turns up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import msgspec

from trainerd.checkpoints.manifest import About, Manifest, Minimum
from trainerd.config.schema import CheckpointConfig
from trainerd.loop.boundary_state import BoundaryState
from trainerd.loop.contract import Savable, Steps
from trainerd.loop.guard.holding import COPIED_PER_SEC
from trainerd.loop.minima.valleys import Valleys, Verdict

log = logging.getLogger(__name__)

LOSS = "loss"


class Minima:
    """Follows the loss of every step, and holds the state of the lowest boundary that was checked.

    A look never brings the loop to a boundary: it uses those that come anyway, once a second. A snapshot has later
    steps copy what they write to. After one, the next one waits until it has cost no more than `minima_overhead` of the
    time. Memory holds one snapshot at most, beside the one that is being written.

    Args:
      config: how the loss is followed.
      found: called with the step and the smoothed loss of each minimum.
      timer: seconds on a clock that is never set.

    Attributes:
      valleys: what is known of the loss.
      next_at: when a boundary may be checked again, in seconds of the timer.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        found: Callable[[int, float], None],
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._found = found
        self.next_at = 0.0
        self.valleys = Valleys()
        self._confirmed: BoundaryState | None = None  # waits to be saved
        self._timer = timer
        self._candidate: BoundaryState | None = None
        self._is_new = False  # whether losses came since the last look

    def reconfigure(self, config: CheckpointConfig) -> None:
        """Follow the loss like this from now on."""
        self._config = config

    @property
    def is_on(self) -> bool:
        """True if the steps report a loss."""
        return self._config.minima and self.valleys.count > 0

    def resumed(self, found: Manifest) -> None:
        """Follow the loss from this checkpoint, from which the run resumes.

        The checkpoint of a valley's lowest boundary is on disk: see `to_save_with`.
        """
        for each in self._held:
            each.drop()
        self._candidate = self._confirmed = None
        try:
            self.valleys = msgspec.convert(found.valleys, Valleys) if found.valleys else Valleys()
        except msgspec.ValidationError:  # of another version
            self.valleys = Valleys()
        self.next_at = 0.0

    def steps(self, steps: Steps, loss: str = LOSS) -> None:
        """Follow the losses of these steps.

        Args:
          steps: what was run.
          loss: the name of the loss.
        """
        if self._config.minima and loss in steps.names and len(steps.rows):
            losses = steps.rows[:, list(steps.names).index(loss)]
            self.valleys = self.valleys.seen(losses, self._config.minima_smoothing_steps)
            self._is_new = True

    def consider(self, model: Savable, about: About, *, is_saved: bool = False) -> None:
        """Check the loss at this boundary. Take the state if it is the lowest; a minimum then waits to be saved.

        Args:
          model: the model.
          about: what is known of this boundary.
          is_saved: whether a checkpoint is made of this boundary: another snapshot of it costs nothing more.
        """
        began = self._timer()
        if (
            (began < self.next_at and not is_saved)
            or not self.is_on
            or not self._is_new
            or not model.has_all_variables
            or isinstance(model, BoundaryState)
        ):
            return
        self._is_new, before = False, self.valleys
        self.valleys, verdict = self.valleys.looked_at(
            model.step,
            smoothing=self._config.minima_smoothing_steps,
            prominence=self._config.minima_prominence,
        )
        if verdict is Verdict.LOWEST:
            self._candidate = candidate = self._taken(model, about)
            cost = self._timer() - began + candidate.size / COPIED_PER_SEC
            self.next_at = began + cost / self._config.minima_overhead
        elif verdict is Verdict.CONFIRMED:
            self._confirm(before)

    def to_save_with(self, step: int) -> BoundaryState | None:
        """Return the candidate that a checkpoint of this step needs on disk: the next start has no snapshot of it."""
        found = self._candidate
        return found if found is not None and found.held is not None and found.step != step else None

    def take_confirmed(self) -> BoundaryState | None:
        """Return a minimum that waits to be saved, for the one who saves it; None if none does."""
        found, self._confirmed = self._confirmed, None
        return found

    def minimum_at(self, step: int) -> Minimum | None:
        """Return the minimum if this step is the lowest boundary of its valley so far; None if it is not."""
        return self._candidate.about.minimum if self._candidate is not None and self._candidate.step == step else None

    def forget(self, step: int) -> None:
        """Drop the state of this step: it is on disk, or has changed since. May be called on the thread that writes."""
        for each in self._held:
            if each.step == step:
                each.drop()

    def described(self) -> Mapping[str, Any]:
        """Return the known facts about the loss, for a manifest."""
        return asdict(self.valleys) if self.is_on else {}

    @property
    def _held(self) -> list[BoundaryState]:
        return [each for each in (self._candidate, self._confirmed) if each is not None]

    def _taken(self, model: Savable, about: About) -> BoundaryState:
        if self._candidate is not None:
            self._candidate.drop()
        minimum = Minimum(self.valleys.average, self.valleys.valley)
        about = replace(about, minimum=minimum, valleys=self.described())
        return BoundaryState(model.step, model.changes, model.has_all_variables, about, model.snapshot())

    def _confirm(self, valleys: Valleys) -> None:
        assert valleys.lowest is not None
        log.info(
            "the loss has turned up: its minimum was %.4g, smoothed, at step %d",
            valleys.lowest,
            valleys.lowest_step,
            extra={"event": "minimum", "step": valleys.lowest_step},
        )
        self._found(valleys.lowest_step, valleys.lowest)
        found, self._candidate = self._candidate, None
        if found is not None and found.held is not None:  # else it is on disk
            if self._confirmed is not None:
                self._confirmed.drop()
            self._confirmed = found
