"""Stub."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Verdict:
    """V."""

    may_train: bool
    why: str = ""
    until: datetime | None = None
