"""The fingerprint of what a run was trained with: each manifest has it, and it is compared when the run resumes.

Pure, needs no TensorFlow. A fingerprint is flat, "input.batch_size" to "32", so that a difference can be shown as it
is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from trainerd.config.schema import DESCRIPTION, NOT_TRAINED, PLACE, Config, every_key

Fingerprint = dict[str, str]

STATE = "job.state"
_GRAPH = "job.graph"
SOFTWARE = "software."  # and the name of a package
SOURCE = "job.source"  # see `trainerd.job.source`
PROGRAM_SOURCE = "job.source.program"  # of a program that calls `fit`; missing at a prompt and in a notebook
EPOCHS = "job.epochs"  # of a KerasJob that ends with them
CALL = "job.call"  # the number of the call of `fit` that trained it, from 0; the first one if it is missing
DEVICES = "job.devices"  # how many train it, and how many values each has for itself; one if it is missing
_PARAMS = "config.params."  # and the name of a parameter
_SOURCES = (SOURCE, SOFTWARE, _PARAMS)  # the same ones build the same graph
_OPTIMIZER = "job.optimizer."  # and where it stands
ELEMENTS = "input.element_spec"
PIPELINE = "input.pipeline"
_POSITION = (ELEMENTS, PIPELINE)
_CONTENT = "input.content"

WORKERS = "cluster.workers"  # how many workers trained it; one if it is missing
POSITIONS = "cluster.positions"  # whether the position of one is that of all
SHARED, OWN = "one for all", "one for each worker"

FORMAT = "input.format"  # of what follows; a manifest without it is of the first
FIRST_FORMAT = "1"
UNREAD = "?"  # in place of what this TensorFlow does not expose of a dataset
_OF_FORMAT = (PIPELINE, _CONTENT, "input.seeds", "input.sources")
_STAGE = re.compile(r"(?P<name>[\w?]+)(?:\((?P<settings>[^()]*)\))?")


@dataclass(frozen=True)
class FingerprintDifference:
    """One entry that differs. `None` stands for a missing entry."""

    name: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"

    @property
    def what(self) -> str:
        """The change without its name; of a pipeline only the stages and arguments that differ."""
        if self.name == PIPELINE and self.before and self.now:
            return _changed_stages(self.before, self.now)
        return f"{self.before or 'none'} → {self.now or 'none'}"

    @property
    def place(self) -> str:
        """The place of an optimizer in the job's state; the name of another entry."""
        return self.name.removeprefix(_OPTIMIZER)

    @property
    def moves_position(self) -> bool:
        """True if a saved position of the dataset now means another place."""
        return self.name in _POSITION and self.before is not None and self.now is not None

    @property
    def moves_order(self) -> bool:
        """True if the dataset has other elements at the same places."""
        return self.name == _CONTENT and self.before is not None and self.now is not None

    @property
    def is_of_state(self) -> bool:
        """True if the variables differ."""
        return self.name == STATE

    @property
    def is_of_optimizer(self) -> bool:
        """True if the saved slots are those of another optimizer in the same place."""
        return self.name.startswith(_OPTIMIZER) and self.before is not None and self.now is not None


def are_of_one_call(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether both are of the same call of `fit`: another one may have another optimizer and other data."""
    return before.get(CALL) == now.get(CALL)


def call_of(fingerprint: Mapping[str, str]) -> int:
    """Return the number of the call of `fit`, from 0."""
    number = fingerprint.get(CALL, "0")
    return int(number) if number.isdecimal() else 0


def builds_otherwise(changes: Sequence[FingerprintDifference], now: Mapping[str, str]) -> bool:
    """Return whether the job builds something else, although its source is known to be the same."""
    built = [each for each in changes if each.name == _GRAPH and each.before is not None and each.now is not None]
    is_known = bool(now.get(SOURCE) or now.get(PROGRAM_SOURCE))
    return bool(built) and is_known and not any(each.name.startswith(_SOURCES) for each in changes)


def of_config(config: Config) -> Fingerprint:
    """Return every key of a config but its places, and those that describe the run for a person or copy it."""
    found: Fingerprint = {}
    for name, _, _ in every_key():
        value: object = config
        for part in name.split("."):
            value = getattr(value, part)
        if name in (*PLACE, *DESCRIPTION) or name.startswith(NOT_TRAINED) or value is None:
            continue
        if isinstance(value, Mapping):
            found |= {f"config.{name}.{key}": str(each) for key, each in value.items()}
        else:
            found[f"config.{name}"] = str(value)
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[FingerprintDifference]:
    """Return all differences, sorted by name."""
    names = sorted(before.keys() | now.keys())
    changed = [FingerprintDifference(n, before.get(n), now.get(n)) for n in names if before.get(n) != now.get(n)]
    if before.get(WORKERS) != now.get(WORKERS):  # each has another part of a batch, of one position
        changed = [each for each in changed if each.name not in (ELEMENTS, _GRAPH)]
    is_readable = before.get(FORMAT, FIRST_FORMAT) == now.get(FORMAT, FIRST_FORMAT)
    return [each for each in changed if each.name != FORMAT and not _is_unread(each, is_readable=is_readable)]


def _is_unread(change: FingerprintDifference, *, is_readable: bool) -> bool:
    """Return whether a difference is not a change of the data: one side could not read what the other could."""
    if change.name not in _OF_FORMAT or change.before is None or change.now is None:
        return False
    if not is_readable:
        return True
    if change.name == PIPELINE:
        return _are_alike(change.before, change.now)
    return UNREAD in change.before + change.now


def _are_alike(before: str, now: str) -> bool:
    """Return whether two descriptions of a pipeline agree in all that both sides could read."""
    ones, others = list(_STAGE.finditer(before)), list(_STAGE.finditer(now))
    if _STAGE.sub("", before) != _STAGE.sub("", now) or len(ones) != len(others):
        return UNREAD in before + now  # what is below a stage was not read
    for one, other in zip(ones, others, strict=True):
        if one["name"] != other["name"] and UNREAD not in (one["name"], other["name"]):
            return False
        had, has = _settings(one["settings"]), _settings(other["settings"])
        if any(had[key] != has[key] for key in had.keys() & has.keys()):
            return False
    return True


def _changed_stages(before: str, now: str) -> str:
    """Return how two descriptions of a pipeline differ, such as "batch_size 64 → 32, added Cache"."""
    ones, others = list(_STAGE.finditer(before)), list(_STAGE.finditer(now))
    names, other_names = [each["name"] for each in ones], [each["name"] for each in others]
    if _STAGE.sub("", before) == _STAGE.sub("", now) and names == other_names:
        return ", ".join(_changed_arguments(ones, others))
    parts = []
    for kind, start, end, other_start, other_end in SequenceMatcher(None, names, other_names, False).get_opcodes():
        if kind == "equal":
            parts += _changed_arguments(ones[start:end], others[other_start:other_end])
            continue
        gone, new = (" > ".join(each[0] for each in part) for part in (ones[start:end], others[other_start:other_end]))
        parts.append(f"{gone} → {new}" if gone and new else f"removed {gone}" if gone else f"added {new}")
    return ", ".join(parts) or f"{before} → {now}"


def _changed_arguments(ones: Sequence[re.Match[str]], others: Sequence[re.Match[str]]) -> list[str]:
    """Return the arguments that differ between stages of the same names; with the stage if several have such a one."""
    every = [_settings(each["settings"]) for each in ones]
    found = []
    for one, had, other in zip(ones, every, others, strict=True):
        has = _settings(other["settings"])
        for key in sorted(key for key in had.keys() | has.keys() if had.get(key) != has.get(key)):
            stage = f"{one['name']} " if sum(key in each for each in every) > 1 else ""
            found.append(f"{stage}{key} {had.get(key, 'none')} → {has.get(key, 'none')}")
    return found


def _settings(text: str | None) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in (text or "").split(", ") if part)
