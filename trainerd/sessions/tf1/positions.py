"""The position of an iterator, as a checkpoint has it."""

from __future__ import annotations

from dataclasses import dataclass

POSITION = "trainerd/position/"  # the keys in a checkpoint of what an iterator has given already


_AT_END = " at-end"  # behind what initialized an iterator that had nothing more to give


@dataclass(frozen=True)
class IteratorPosition:
    """The position of an iterator.

    Attributes:
      made_by: the operation that initialized it last; empty if no run of the program did.
      state: TensorFlow's serialized state of it.
      is_at_end: whether a run has reached its end.
    """

    made_by: str
    state: bytes
    is_at_end: bool

    @classmethod
    def of(cls, content: bytes) -> IteratorPosition:
        """Read its bytes in a checkpoint."""
        first, _, state = content.partition(b"\n")
        made_by = first.decode()
        return cls(made_by.removesuffix(_AT_END), state, made_by.endswith(_AT_END))

    def to_bytes(self) -> bytes:
        """Return its bytes in a checkpoint; empty if there is no position."""
        return f"{self.made_by}{_AT_END if self.is_at_end else ''}\n".encode() + self.state if self.state else b""
