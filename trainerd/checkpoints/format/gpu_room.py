"""The room that GPUs have for a snapshot which shares the memory of the variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

_ROOM = 1.1  # of what the snapshot keeps, that must be free
_FULL = 0.95  # of the memory, in use at most


class GPURoom:
    """Decides whether a snapshot may stay on the GPUs while steps write to the variables.

    The most memory that was in use so far is what a step needs. A GPU that is nearly full has no room from then on.

    Args:
      limit: maps a GPU to how many bytes of memory TensorFlow can use on it; to None if that is unknown.
      peak: maps it to the most bytes that were in use on it.
    """

    def __init__(self, limit: Callable[[str], int | None], peak: Callable[[str], int]) -> None:
        self._limit = limit
        self._peak = peak
        self._limits: dict[str, int | None] = {}
        self._has_shared = False

    def has(self, sizes: Mapping[str, int]) -> bool:
        """Return whether all GPUs have room. It is False the first time, before which no step may have run.

        Args:
          sizes: the bytes that a snapshot keeps on each GPU.
        """
        if not self._limits:
            self._limits = {gpu: self._limit(gpu) for gpu in sizes}
            return False
        for gpu, size in sizes.items():
            limit = self._limits[gpu]
            more = 0 if self._has_shared else _ROOM * size  # later it is in the peak
            if limit is None or self._peak(gpu) + more > _FULL * limit:
                self._limits[gpu] = None
                return False
        self._has_shared = True
        return True
