"""The texts of messages, read from the source: what varies in one is shown as …"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VARIES = "…"
_DEPTH = 4  # of names and functions that a text goes through
_PERCENT = re.compile(r"%(?:\([a-z_]+\))?[-+ #0-9.]*[a-zA-Z]")
_MOST = 12  # texts of one expression


@dataclass(frozen=True)
class Said:
    """A message: what is raised or called with it, and its text."""

    by: str
    text: str


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def messages(path: Path) -> Iterator[Said]:
    """Every message of a file: of `raise X(text)`, and of calls such as `log.warning(text)` and `warn(text)`."""
    tree = _parsed(path)
    scope = _Names(tree)
    for function in [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))]:
        local = _Names(function, scope)
        for node in _own(function):
            call = node.exc if isinstance(node, ast.Raise) else node
            if isinstance(call, ast.Call) and call.args and (by := _called(call, isinstance(node, ast.Raise))):
                for text in local.texts(call.args[0]):
                    if re.search(r"\w", _PERCENT.sub(VARIES, text)):
                        yield Said(by, _PERCENT.sub(VARIES, text).replace("%%", "%"))


def classes(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The classes of a file, each with its bases."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.ClassDef):
            yield node.name, [ast.unparse(base).split(".")[-1] for base in node.bases]


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, and not in one that is in it."""
    left = [*ast.iter_child_nodes(function)][::-1]
    while left:
        if not isinstance(node := left.pop(), ast.FunctionDef):
            yield node
            left += [*ast.iter_child_nodes(node)][::-1]


def _called(call: ast.Call, is_raised: bool) -> str | None:
    name = ast.unparse(call.func)
    if is_raised:
        return name.split(".")[-1]
    owner, _, method = name.rpartition(".")
    is_log = owner.split(".")[-1].strip("_") in ("log", "logger") and method in ("warning", "error")
    return method if is_log else "warning" if method == "warn" and owner.endswith("reporter") else None


class _Names:
    """What names of a module or a function stand for."""

    def __init__(self, node: ast.AST, around: _Names | None = None) -> None:
        self._node = node
        self._around = around

    @functools.cached_property
    def _values(self) -> dict[str, list[ast.expr]]:
        values: dict[str, list[ast.expr]] = {}
        for each in _own(self._node):
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                values.setdefault(each.targets[0].id, []).append(each.value)
        return values

    @functools.cached_property
    def _functions(self) -> dict[str, ast.FunctionDef]:
        return {each.name: each for each in ast.walk(self._node) if isinstance(each, ast.FunctionDef)}

    def texts(self, node: ast.expr, depth: int = _DEPTH) -> list[str]:
        """Every text that an expression may give, as far as the source says."""
        return self._found(node, depth)[:_MOST] if depth else [VARIES]

    def _found(self, node: ast.expr, depth: int) -> list[str]:
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else [VARIES]
        if isinstance(node, ast.IfExp):
            return self.texts(node.body, depth) + self.texts(node.orelse, depth)
        if isinstance(node, ast.JoinedStr):
            return self._joined(list(node.values), "", depth)
        if isinstance(node, ast.FormattedValue):
            return self.texts(node.value, depth - 1) if isinstance(node.value, ast.Name) else [VARIES]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._joined([node.left, node.right], "", depth)
        if isinstance(node, ast.Name):
            values = self._value(node.id)
            return [text for value in values for text in self.texts(value, depth - 1)] or [VARIES]
        if isinstance(node, ast.Call):
            return self._of_call(node, depth)
        return [VARIES]

    def _of_call(self, node: ast.Call, depth: int) -> list[str]:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "join" and node.args:
            separator, parts = node.func.value, node.args[0]
            if isinstance(separator, ast.Constant) and isinstance(parts, ast.List):
                return self._joined(list(parts.elts), str(separator.value), depth)
        if isinstance(node.func, ast.Name) and (function := self._function(node.func.id)) is not None:
            names = _Names(function, self._around or self)
            returned = [n.value for n in _own(function) if isinstance(n, ast.Return) and n.value is not None]
            return [text for value in returned for text in names.texts(value, depth - 1)] or [VARIES]
        return [VARIES]

    def _joined(self, parts: list[ast.expr], separator: str, depth: int) -> list[str]:
        found = [""]
        for number, part in enumerate(parts):
            texts = self.texts(part, depth)
            found = [f"{a}{separator if number else ''}{b}" for a in found for b in texts][:_MOST]
        return found

    def _value(self, name: str) -> list[ast.expr]:
        return self._values.get(name) or (self._around._value(name) if self._around else [])

    def _function(self, name: str) -> ast.FunctionDef | None:
        return self._functions.get(name) or (self._around._function(name) if self._around else None)
