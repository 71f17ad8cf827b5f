"""What a program asks for of its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KeepSettings:
    """How many checkpoints are kept: the last so many, and one for each so many hours. 0 stands for none by that."""

    last: int = 5
    hours: float = 0.0
