"""The state that a user's object, such as a callback, keeps outside of itself, where no checkpoint holds it.

It is found in the source of the object's methods, before the first step. Methods without source are not read.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import linecache
import random
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

# Methods of a callback that run at each start, before a checkpoint is restored: what they set is set again.
AT_EACH_START = {"__init__", "set_model", "set_params", "on_train_begin"}
_CHANGE_THEIRS = {
    *("append", "appendleft", "extend", "insert", "remove", "pop", "popleft", "popitem", "clear", "add", "discard"),
    *("update", "setdefault", "sort", "reverse", "rotate", "subtract", "assign", "assign_add", "assign_sub"),
}
_OF_MODEL = ("model", "_model")
# What a callback sets on a model and a checkpoint holds; and `trainable`, which a step that is made no longer reads.
_SAVED_OF_MODEL = {"stop_training", "learning_rate", "lr", "iterations", "trainable"}
_PART = "[]"  # of a container, in a path


def functions_of(kind: type) -> Iterator[tuple[str, FunctionType]]:
    """Yield the functions in the body of a class, by name."""
    for name, value in vars(kind).items():
        parts = (value.fget, value.fset) if isinstance(value, property) else (value,)
        yield from ((name, found) for part in parts if (found := function_in(part)) is not None)


def function_in(value: Any) -> FunctionType | None:
    """Return the function of a method, a static method, a partial or a decorated function; None if it is none of
    Python's."""
    value = getattr(value, "python_function", value)  # of a tf.function
    value = value.func if isinstance(value, functools.partial) else getattr(value, "__func__", value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def kept_outside(
    functions: Iterable[FunctionType],
    owner: Any,
    is_saved: Callable[[Any], bool],
    is_kept: Callable[[Any], bool] = lambda value: False,
) -> list[str]:
    """Return the state that functions keep outside of their owner, and the generators not its own that they draw from.

    Args:
      functions: those that run between steps.
      owner: the object that they belong to.
      is_saved: whether a checkpoint holds an object: it belongs to the model.
      is_kept: whether a checkpoint holds all of an object.

    Returns:
      For each a few words, such as "N on the class Counts".
    """
    to_read, read, found = list(functions), set[int](), list[str]()
    while to_read:
        function = to_read.pop(0)
        if id(function.__code__) in read:
            continue
        read.add(id(function.__code__))
        for node in _nodes_of(function):
            code = _Code(function, node, owner, is_saved, is_kept)
            found += [*code.writes(), *code.draws()]
            to_read += code.helpers()
    return list(dict.fromkeys(found))


def attributes_set(functions: Iterable[FunctionType]) -> set[str]:
    """Return the attributes of their own object that methods set or change."""
    places = [place for each in functions for node in _nodes_of(each) for place in _places(node)]
    return {path[1] for path in places if path[0] == "self" and len(path) > 1}


class _Code:
    """The code of one function, with the values of the names that are not its own."""

    def __init__(
        self,
        function: FunctionType,
        node: ast.AST,
        owner: Any,
        is_saved: Callable[[Any], bool],
        is_kept: Callable[[Any], bool],
    ) -> None:
        self._function, self._node = function, node
        self._owner, self._is_saved, self._is_kept = owner, is_saved, is_kept
        code = function.__code__
        self._cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
        self._declared = {
            name for each in ast.walk(node) if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names
        }
        own = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        own |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        self._own = own - self._declared

    def writes(self) -> Iterator[str]:
        """Yield the words for everything that the code changes outside of its owner."""
        for root, *path in _places(self._node):
            if root == "self" and "self" in self._own:
                yield from self._on_self(path)
            elif root in self._declared and not path:
                yield from self._named(root)
            elif root not in self._own and path and (value := self._value(root)) is not _UNKNOWN:
                yield from self._on(root, value, path)

    def _on_self(self, path: list[str]) -> Iterator[str]:
        kind, names = type(self._owner), [name for name in path if name != _PART]
        if len(names) > 1 and names[0] == "__class__":
            yield _on_class(names[1], kind)
        elif len(names) > 1 and names[0] in _OF_MODEL:
            yield from _on_model(names[1:], path)
        elif names and len(path) > 1 and names[0] not in vars(self._owner):  # it is changed where it is: on the class
            held = getattr(kind, names[0], property())
            yield from () if isinstance(held, property) else (_on_class(names[0], kind),)

    def _named(self, name: str) -> Iterator[str]:
        if name in self._cells:
            yield f"{name} of the function around {self._function.__name__}"
        elif name in self._function.__globals__:
            yield f"the global {name}"

    def _on(self, root: str, value: Any, path: list[str]) -> Iterator[str]:
        names = [name for name in path if name != _PART]
        if isinstance(value, ModuleType) and not names:  # a call of its function, such as os.remove
            return
        if isinstance(value, type):
            yield _on_class(names[0] if names else root, value)
        elif self._is_saved(value):
            yield from _on_model(names, path) if names else ()
        else:
            yield from self._named(root)

    def draws(self) -> Iterator[str]:
        """Yield the iterators and the generators of random numbers that it takes from, and that are not its owner's."""
        for each in ast.walk(self._node):
            if not isinstance(each, ast.Name | ast.Attribute) or not isinstance(each.ctx, ast.Load):
                continue
            value = self._module_value(each)
            if isinstance(getattr(value, "__self__", None), np.random.RandomState | random.Random):
                yield f"its place in the random numbers of {ast.unparse(each)}, which all code shares"
            elif isinstance(each, ast.Name) and (
                isinstance(value, np.random.Generator | np.random.RandomState | random.Random)
                or (hasattr(value, "__next__") and not isinstance(value, type | io.IOBase))
            ):
                yield from self._named(each.id)

    def helpers(self) -> Iterator[FunctionType]:
        """Yield the functions of the same module that it names."""
        for each in ast.walk(self._node):
            if isinstance(each, ast.Name) and each.id not in self._own:
                found = function_in(self._value(each.id))
                if found is not None and found.__module__ == self._function.__module__:
                    yield found

    def _module_value(self, node: ast.AST) -> Any:
        """Return the value of a name, or of a path within modules such as np.random.uniform."""
        if isinstance(node, ast.Name):
            return _UNKNOWN if node.id in self._own else self._value(node.id)
        if isinstance(node, ast.Attribute):
            module = self._module_value(node.value)
            return getattr(module, node.attr, _UNKNOWN) if isinstance(module, ModuleType) else _UNKNOWN
        return _UNKNOWN

    def _value(self, name: str) -> Any:
        try:
            found = self._cells[name].cell_contents if name in self._cells else self._function.__globals__[name]
            return _UNKNOWN if self._is_kept(found) else found
        except (KeyError, ValueError):  # a cell that is still empty
            return _UNKNOWN


_UNKNOWN = object()


def _on_class(name: str, kind: type) -> str:
    return f"{name} on the class {kind.__name__}"


def _on_model(names: list[str], path: list[str]) -> Iterator[str]:
    is_variable = path[-1] == _PART and names[-1] in ("assign", "assign_add", "assign_sub")
    if names[-1] not in _SAVED_OF_MODEL and not is_variable:
        yield f"{'.'.join(names)} on the model"


def _places(node: ast.AST) -> Iterator[list[str]]:
    """Yield the places that code changes, each as its root and the path from there. The root of `type(self)` is
    `self`."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assign | ast.Delete):
            targets: list[ast.expr] = each.targets
        elif isinstance(each, ast.AugAssign | ast.AnnAssign):
            targets = [each.target]
        elif isinstance(each, ast.Call):
            yield from _changed_by(each)
            continue
        else:
            continue
        for target in targets:
            for leaf in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if path := _path(leaf):
                    yield path


def _changed_by(call: ast.Call) -> Iterator[list[str]]:
    """Yield the places that a call of a method such as `append`, or of setattr, changes."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in _CHANGE_THEIRS and (path := _path(function.value)):
        yield [*path, *([function.attr] if function.attr.startswith("assign") else []), _PART]
    elif isinstance(function, ast.Name) and function.id == "setattr" and len(call.args) == 3:
        name = call.args[1].value if isinstance(call.args[1], ast.Constant) else _PART
        if path := _path(call.args[0]):
            yield [*path, str(name)]


def _path(node: ast.AST) -> list[str]:
    """Return the root and the path of an expression such as `self.model.layers[0].rate`; empty for another form."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*path, node.attr] if (path := _path(node.value)) else []
    if isinstance(node, ast.Subscript):
        return [*path, _PART] if (path := _path(node.value)) else []
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) == 1:
            return [*path, "__class__"] if (path := _path(node.args[0])) else []
        return [*path[:-1], _PART] if len(path := _path(node.func)) > 1 else []  # such as model.get_layer("a")
    return []


def _nodes_of(function: FunctionType) -> list[ast.AST]:
    """Return the nodes of a function in its file: several if there are more lambdas on its line."""
    code = function.__code__
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    return [
        node
        for node in _parsed(source)
        if getattr(node, "name", "<lambda>") == code.co_name and _first_line(node) == code.co_firstlineno
    ]


@functools.lru_cache(maxsize=8)
def _parsed(source: str) -> list[Any]:
    try:
        tree = ast.parse(source)
    except SyntaxError:  # of a notebook's own
        return []
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def _first_line(node: Any) -> int:
    return min(int(each.lineno) for each in [node, *getattr(node, "decorator_list", ())])
