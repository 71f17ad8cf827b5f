"""Finds the large tensors that do not change from one checkpoint to the next, such as those of a frozen backbone.

They go to a data file of their own, which later checkpoints share. Whether one has changed is seen from its memory: a
tensor of an earlier snapshot is held, so that TensorFlow gives the variable other memory when something writes to it. A
copy, as of a GPU, is compared by its hash. So it does not matter what writes: a step, a callback, a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import xxhash

WORTHWHILE = 1 << 23  # bytes: below it a file of its own gains little
_NEW_SHARE = 0.25  # of the file, which must be added by other unchanged tensors before it is written again
_DEAD_SHARE = 0.5  # of the file, which may belong to tensors that have changed since


@dataclass(frozen=True)
class Placed:
    """One tensor in the file.

    Attributes:
      memory: its content, which is held.
      hash: the 128-bit XXH3 of it.
      entry: what the index says of it.
    """

    memory: Any
    hash: str
    entry: bytes


class Unchanged:
    """The tensors of one state that have not changed over the last checkpoints. Only the thread that writes uses it.

    Attributes:
      digest: the 128-bit XXH3 of their file; None if it is still to be written.
      entries: what the index says of each, by its key.
    """

    def __init__(self) -> None:
        self.digest: str | None = None
        self._placed: dict[str, Placed] = {}
        self._sums: dict[str, int] = {}  # the CRC of each other tensor, when it was written last
        self._stable: set[str] = set()  # those that had the same CRC the last time and the time before

    @property
    def entries(self) -> Mapping[str, bytes]:
        """Return what the index says of each tensor in the file that has not changed."""
        return {key: placed.entry for key, placed in self._placed.items()}

    def choose(self, sizes: Mapping[str, int], memory_of: Callable[[str], Any]) -> set[str]:
        """Return the keys of the tensors that are in the file, or are to be written to it. `digest` says which.

        Args:
          sizes: the bytes of each large tensor of a state, by its key.
          memory_of: returns its content.
        """
        before = sum(len(placed.memory) for placed in self._placed.values())
        same = {key for key, placed in self._placed.items() if key in sizes and _is_same(placed, memory_of(key))}
        kept = sum(sizes[key] for key in same)
        new = {key for key in self._stable & sizes.keys() if key not in self._placed}
        added = sum(sizes[key] for key in new)
        if self.digest is not None and added <= _NEW_SHARE * kept and before - kept <= _DEAD_SHARE * before:
            self._placed = {key: placed for key, placed in self._placed.items() if key in same}
            return same
        self.digest, self._placed = None, {}
        return same | new if kept + added >= WORTHWHILE else set()

    def expect(self, keys: Iterable[str]) -> None:
        """Expect that these tensors do not change: the checkpoint that was restored shares them with others."""
        self._stable.update(keys)

    def rewrite(self) -> None:
        """Record that no file of an earlier checkpoint can be shared: those that are the same are written again."""
        self.digest = None

    def written(self, digest: str) -> str:
        """Record that the file is written, and what its 128-bit XXH3 is. Returns that."""
        self.digest = digest
        return digest

    def place(self, key: str, memory: Any, entry: bytes) -> None:
        """Record that a tensor was written to the file."""
        self._placed[key] = Placed(memory, xxhash.xxh3_128_hexdigest(memory), entry)

    def write_elsewhere(self, sums: Mapping[str, int]) -> None:
        """Record which tensors were written with those that change, once the whole checkpoint is written.

        A write that failed records nothing: it is repeated with the same content.

        Args:
          sums: the CRC-32C of the content of each, by its key. Two of the same value only make it a candidate.
        """
        same = {key for key, crc in sums.items() if self._sums.get(key) == crc}
        self._stable = self._stable - sums.keys() | same
        self._sums |= sums


def _is_same(placed: Placed, memory: Any) -> bool:
    ours, theirs = (each.__array_interface__["data"] for each in (placed.memory, memory))
    return ours == theirs or placed.hash == xxhash.xxh3_128_hexdigest(memory)
