"""What a run was trained with: kept in each manifest, and compared when the run goes on. Pure, needs no TensorFlow.

A fingerprint is flat, "input.batch_size" to "32", so that a difference can be shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainerd.config.schema import Config, every_key

Fingerprint = dict[str, str]

_STATE = "job.state"
_GRAPH = "job.graph"
_SOURCES = ("job.source", "software.")  # the same ones build the same graph
_OPTIMIZER = "job.optimizer."  # and where it stands
_POSITION = ("input.element_spec", "input.pipeline")
_CONTENT = "input.content"


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it was; None where there was, or is, no such thing."""

    name: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        return f"{self.name}: {self.before or 'none'} → {self.now or 'none'}"

    @property
    def moves_position(self) -> bool:
        """Whether a saved position of the dataset means another place than it did."""
        return self.name in _POSITION and self.before is not None and self.now is not None

    @property
    def moves_order(self) -> bool:
        """Whether other elements stand at the places of the dataset than did."""
        return self.name == _CONTENT and self.before is not None and self.now is not None

    @property
    def is_of_state(self) -> bool:
        """Whether the variables are others."""
        return self.name == _STATE

    @property
    def is_of_optimizer(self) -> bool:
        """Whether the slots that were saved are those of another optimizer in the same place."""
        return self.name.startswith(_OPTIMIZER) and self.before is not None and self.now is not None


def builds_otherwise(changes: Sequence[Difference]) -> bool:
    """Whether what the job builds is not what it was, although nothing that is known of has changed in it."""
    built = [each for each in changes if each.name == _GRAPH and each.before is not None and each.now is not None]
    return bool(built) and not any(each.name.startswith(_SOURCES) for each in changes)


def of_config(config: Config) -> Fingerprint:
    """Every key of a config but the run directory's place."""
    found: Fingerprint = {}
    for name, _, _ in every_key():
        value: object = config
        for part in name.split("."):
            value = getattr(value, part)
        if name != "logdir" and value is not None:
            found[f"config.{name}"] = str(value)
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[Difference]:
    """What is not as it was, sorted by name."""
    names = sorted(before.keys() | now.keys())
    return [Difference(n, before.get(n), now.get(n)) for n in names if before.get(n) != now.get(n)]
