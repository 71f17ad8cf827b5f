"""What is wrong with docstrings: what their parser complains of, and arguments that the code does not have."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import griffe

# Several arguments may share a line, `secs, steps: …`, which the parser would not find in a signature.
_OPTIONS = {"warn_unknown_params": False, "warn_missing_types": False}


def wrong(things: Iterable[griffe.Object | griffe.Alias]) -> list[str]:
    """All that is wrong with the docstrings of these, and of their public members, a line each."""
    complaints = _Complaints()
    logger = logging.getLogger("griffe")
    logger.addHandler(complaints)
    unknown = [line for thing in things for each in _with_members(thing) for line in _unknown(each)]
    logger.removeHandler(complaints)
    return complaints.said + unknown


def _with_members(thing: griffe.Object | griffe.Alias) -> Iterator[griffe.Object | griffe.Alias]:
    yield thing
    for member in thing.members.values():
        if member.is_public and not member.is_alias:
            yield from _with_members(member)


def _unknown(thing: griffe.Object | griffe.Alias) -> Iterator[str]:
    """The arguments of a docstring that the signature does not have."""
    for section in thing.docstring.parse("google", **_OPTIONS) if thing.docstring else ():
        if section.kind is griffe.DocstringSectionKind.parameters:
            has = _arguments(thing)
            for name in (name for each in section.value for name in each.name.split(", ")):
                if has is not None and name.lstrip("*") not in has:
                    yield f"{thing.path}: it has no argument {name}"


def _arguments(thing: griffe.Object | griffe.Alias) -> set[str] | None:
    """The names of the arguments of a function, or of a class's making; None where a base class has them."""
    maker = thing.members.get("__new__") or thing.members.get("__init__") if isinstance(thing, griffe.Class) else thing
    if maker is None and isinstance(thing, griffe.Class) and not thing.bases:
        return {parameter.name for parameter in thing.parameters}  # of a dataclass
    return None if maker is None else {each.name for each in getattr(maker, "parameters", None) or ()}


class _Complaints(logging.Handler):
    """What the parser says."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a complaint."""
        self.said.append(record.getMessage())
