"""The findings of `trainerd doctor`."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import asdict, dataclass


class FindingKind(enum.StrEnum):
    """The severity of a finding, in the order in which findings are shown."""

    PROBLEM = "problem"
    WARNING = "warning"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
      kind: how bad it is.
      subject: what was checked, such as "disk space".
      said: what was seen, in a line.
      cure: what to do about it; empty if nothing is to be done.
    """

    kind: FindingKind
    subject: str
    said: str
    cure: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding as JSON's types."""
        return asdict(self) | {"kind": str(self.kind)}


def problem(said: str, cure: str) -> Finding:
    """Make a finding of something that stops the run, or loses what it saves."""
    return Finding(FindingKind.PROBLEM, "", said, cure)


def warning(said: str, cure: str) -> Finding:
    """Make a finding of something that may do so, or that nobody can see from here."""
    return Finding(FindingKind.WARNING, "", said, cure)


def well(said: str) -> Finding:
    """Make a finding of something that is as it should be, or does not matter to this run."""
    return Finding(FindingKind.OK, "", said)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in order: problems, then warnings, then what is well; each kind as it came."""
    return sorted(findings, key=lambda each: list(FindingKind).index(each.kind))
