"""Reads from a job's source which parameters it takes, without running it."""

from __future__ import annotations

import ast
from pathlib import Path

from trainerd.system.regular_files import read_regular


def written_params(source: Path, function: str) -> list[str] | None:
    """Return the names of the parameters that a job can take.

    Args:
      source: the file of the job.
      function: the function in it that builds the job; "" for a script.

    Returns:
      The arguments of the function, or those of each `trainerd.params` of the script. None if the source does not say:
      a function that is imported, decorated or takes `**kwargs`, or a source that cannot be read.
    """
    try:
        tree = ast.parse(read_regular(source))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the start says why
    return _of_function(tree, function) if function else _of_script(tree)


def _of_function(tree: ast.Module, name: str) -> list[str] | None:
    made = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == name]
    found = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name]
    if len(made) != 1 or len(found) != 1 or found[0].decorator_list or found[0].args.kwarg is not None:
        return None
    return [each.arg for each in (*found[0].args.args, *found[0].args.kwonlyargs)]


def _of_script(tree: ast.Module) -> list[str] | None:
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and _is_params(each.func)]
    names = [keyword.arg for call in calls for keyword in call.keywords]
    return [name for name in names if name is not None] if calls and None not in names else None


def _is_params(called: ast.expr) -> bool:
    """Return whether an expression is `trainerd.params`."""
    return (
        isinstance(called, ast.Attribute)
        and called.attr == "params"
        and isinstance(called.value, ast.Name)
        and called.value.id == "trainerd"
    )
