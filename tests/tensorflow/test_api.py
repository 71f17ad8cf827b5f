"""The public names and their signatures are those in api.txt, so that no change of them goes unnoticed.

After an intended change,

    .venv/bin/python -m tests.tensorflow.test_api

writes the file again.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import trainerd
import trainerd.data
import trainerd.hooks
import trainerd.keras
from trainerd.compat import estimator

RECORD = Path(__file__).with_name("api.txt")
MODULES = (trainerd, trainerd.keras, trainerd.data, trainerd.hooks, estimator)
LITERALS = (bool, int, float, str, bytes, type(None))


def is_ours(thing: Any) -> bool:
    return str(thing.__module__).split(".")[0] == "trainerd"


def is_literal(value: object) -> bool:
    """Whether the `repr` of a value is the same in each process. Sets have no order, and objects have addresses."""
    return type(value) in LITERALS or (isinstance(value, tuple) and all(map(is_literal, value)))


class Default:
    """A default as it is recorded."""

    def __init__(self, value: object) -> None:
        self._text = repr(value) if is_literal(value) else "..."

    def __repr__(self) -> str:
        return self._text


class Annotation:
    """A type as it is recorded: as the source writes it. None of them is evaluated, which would need TensorFlow."""

    def __init__(self, annotation: Any) -> None:
        self._text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self._text


def signature(function: Any, *, is_bound: bool = False, returns: bool = True) -> str:
    """The parameters of a function, and what it returns. `is_bound` leaves out the first one."""
    found = inspect.signature(function)
    shown = [
        each.replace(
            annotation=each.empty if each.annotation is each.empty else Annotation(each.annotation),
            default=each.empty if each.default is each.empty else Default(each.default),
        )
        for each in found.parameters.values()
    ]
    returned = found.return_annotation
    returned = Annotation(returned) if returns and returned is not found.empty else found.empty
    return str(inspect.Signature(shown[bool(is_bound) :], return_annotation=returned))


def construction(cls: type) -> str:
    """The parameters of a class. What Python itself constructs in C has no stable signature."""
    for name in ("__init__", "__new__"):
        if isinstance(function := inspect.getattr_static(cls, name), FunctionType):
            return signature(function, is_bound=True, returns=False)
        if isinstance(function, staticmethod):
            return signature(function.__func__, is_bound=True, returns=False)
    return "(...)"


def members(name: str, cls: type) -> Iterator[str]:
    """A line for each public method, property and constant of a class that trainerd defines."""
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    names = {each for base in cls.__mro__ if is_ours(base) for each in vars(base) if not each.startswith("_")}
    for each in names - fields:
        found = inspect.getattr_static(cls, each)
        if isinstance(found, staticmethod):
            yield f"{name}.{each}{signature(found.__func__)}"
        elif isinstance(found, classmethod):
            yield f"{name}.{each}{signature(found.__func__, is_bound=True)}"
        elif isinstance(found, FunctionType):
            yield f"{name}.{each}{signature(found, is_bound=True)}"
        elif isinstance(found, property | cached_property) or inspect.isdatadescriptor(found):
            yield f"{name}.{each}: property"
        else:
            yield f"{name}.{each} = {Default(found)!r}"


def described(name: str, thing: Any) -> Iterator[str]:
    """The lines of one public name."""
    if isinstance(thing, type | FunctionType | MethodType) and not is_ours(thing):
        yield f"{name}: of another package"
    elif isinstance(thing, type):
        yield f"class {name}{construction(thing)}"
        yield from members(name, thing)
    elif callable(thing):
        yield f"{name}{signature(thing)}"
    else:
        yield f"{name}: {type(thing).__name__}"


def api() -> list[str]:
    """The public API, a sorted line for each name. A second name of a thing refers to the first."""
    lines, names, modules = [], dict[int, str](), list(MODULES)
    for module in modules:
        for each in sorted(module.__all__):
            thing, name = getattr(module, each), f"{module.__name__}.{each}"
            if isinstance(thing, ModuleType):
                modules.append(thing)
            elif (first := names.setdefault(id(thing), name)) != name:
                lines.append(f"{name} = {first}")
            else:
                lines += described(name, thing)
    return sorted(lines, key=lambda line: line.removeprefix("class "))


def test_the_public_api_is_the_recorded_one() -> None:
    recorded = RECORD.read_text(encoding="utf-8").splitlines()
    difference = "\n".join(difflib.unified_diff(recorded, api(), RECORD.name, "the code", lineterm="", n=0))
    assert not difference, (
        f"the public API has changed:\n{difference}\nIf that is intended, run `.venv/bin/python -m "
        "tests.tensorflow.test_api`. A line that is changed or gone needs a line in CHANGELOG.md."
    )


if __name__ == "__main__":
    RECORD.write_text("\n".join(api()) + "\n", encoding="utf-8")
