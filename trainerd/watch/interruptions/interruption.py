"""An interruption of the machine, and the contract with what announces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

InterruptionKind = Literal["sleep", "shutdown", "spot", "ups"]
_LEAST_SECS, _MOST_SECS = 10.0, 900.0  # for which answers are waited for, whatever a clock or a UPS says


class SourceError(Exception):
    """A source of interruptions cannot be asked. The listener logs the text once, and tries again later."""


class AbsentError(SourceError):
    """This machine does not have the source."""


@dataclass(frozen=True)
class MachineInterruption:
    """An announcement that the machine stops soon.

    Attributes:
      kind: the kind.
      key: distinguishes it from all others.
      title: what happens to the machine, in words that a terminal can show.
      secs: the time that is left for saving.
    """

    kind: InterruptionKind
    key: str
    title: str
    secs: float


class InterruptionSource(Protocol):
    """Announces interruptions. One thread uses it."""

    @property
    def name(self) -> str:
        """Its name, for the log."""

    @property
    def poll_secs(self) -> float:
        """The seconds between two polls; 0 if `poll` waits itself."""

    def poll(self) -> MachineInterruption | None:
        """Return the interruption that is announced now; None if there is none. Each is returned once.

        Raises:
          SourceError: it cannot be asked.
        """

    def finish(self) -> None:
        """Let the machine stop: the runs have answered, or their time is over."""


class NoticeSource:
    """A source that gives notice, and does not wait for the runs: a cloud, or a battery."""

    def finish(self) -> None:
        """Release nothing."""


def bounded(secs: float) -> float:
    """Return the time that is left for saving, by what a source says of it."""
    return min(_MOST_SECS, max(_LEAST_SECS, secs))
