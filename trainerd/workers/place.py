"""The place of this process among the workers. A job asks for it while it is built."""

from __future__ import annotations

from dataclasses import dataclass

from trainerd.system.process_wide import process_wide


@dataclass(frozen=True)
class Place:
    """A worker's place in its cluster.

    Attributes:
      rank: its number, from 0; the chief's is 0.
      size: how many workers there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_chief(self) -> bool:
        """True if this is the worker that saves, evaluates and writes event files."""
        return self.rank == 0


_places = process_wide("places", [Place()])


def cluster() -> Place:
    """Return the place of this process: rank 0 of 1 if it trains alone."""
    return _places[-1]


def set_place(place: Place) -> None:
    """Set the place of this process among the workers."""
    _places.append(place)
