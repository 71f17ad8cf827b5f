"""The position of an iterator, as a checkpoint has it."""

from __future__ import annotations

from dataclasses import dataclass

POSITION = "trainerd/position/"  # the keys in a checkpoint of what an iterator has given already


_AT_END = " at-end"  # behind what initialized an iterator that had nothing more to give


@dataclass(frozen=True)
class IteratorPosition:
    """Where an iterator was.

    Attributes:
      made_by: what initialized it last; empty where no run of the program did.
      state: what TensorFlow says of it.
      is_at_end: whether a run was told that it has no more.
    """

    made_by: str
    state: bytes
    is_at_end: bool

    @classmethod
    def of(cls, content: bytes) -> IteratorPosition:
        """What a checkpoint has of it."""
        first, _, state = content.partition(b"\n")
        made_by = first.decode()
        return cls(made_by.removesuffix(_AT_END), state, made_by.endswith(_AT_END))

    def to_bytes(self) -> bytes:
        """What a checkpoint has of it; nothing where there is nothing to say."""
        return f"{self.made_by}{_AT_END if self.is_at_end else ''}\n".encode() + self.state if self.state else b""
