"""The room that GPUs have for a snapshot which shares the memory of the variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

_MORE = 1.1  # of what the snapshot keeps, that steps may write meanwhile
_FULL = 0.95  # of the memory, in use at most


def peak_memory(gpu: str) -> int:
    """Return the most memory that TensorFlow has had in use on a GPU, in bytes."""
    return int(tf.config.experimental.get_memory_info(gpu)["peak"])


class GPURoom:
    """Decides whether a snapshot may stay on the GPUs while steps write to the variables.

    What a step needs is the most memory that was in use before the first such snapshot. A GPU that was nearly full once
    has no room from then on.

    Args:
      limit: maps a GPU to how many bytes of memory TensorFlow can use on it; to None if that is unknown.
      peak: maps it to the most bytes that were in use on it.
    """

    def __init__(self, limit: Callable[[str], int | None], peak: Callable[[str], int]) -> None:
        self._limit = limit
        self._peak = peak
        self._limits: dict[str, int | None] = {}
        self._peaks: dict[str, int] = {}  # before the first snapshot that stayed

    def has(self, sizes: Mapping[str, int]) -> bool:
        """Return whether all GPUs have room. The first time it is False: perhaps no step has run yet.

        Args:
          sizes: the bytes that a snapshot keeps on each GPU.
        """
        if not self._limits:
            self._limits = {gpu: self._limit(gpu) for gpu in sizes}
            return False
        peaks = {gpu: self._peak(gpu) for gpu in sizes}
        for gpu, size in sizes.items():
            limit = self._limits.get(gpu)
            wanted = max(peaks[gpu], self._peaks.get(gpu, peaks[gpu]) + _MORE * size)
            if limit is None or wanted > _FULL * limit:
                self._limits[gpu] = None
                return False
        self._peaks = self._peaks or peaks
        return True
