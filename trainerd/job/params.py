"""The parameters of a job, which the config or the command line gives: arguments of a function, or asked for in a
script."""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from trainerd.errors import EntryError
from trainerd.system.process_wide import process_wide, within

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ScriptParams:
    """The parameters of the script that runs.

    Args:
      entry: the script, for messages.
      values: the parameters.
    """

    def __init__(self, entry: str, values: Mapping[str, Any]) -> None:
        self._entry, self._values = entry, values
        self._is_asked = False

    def over(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults of the script with these values in place of them.

        Raises:
          EntryError: the script has no such parameter.
        """
        self._is_asked = True
        for name in self._values:
            if name not in defaults:
                raise EntryError(
                    f"entry = {self._entry!r}: [params] has {name!r}, and the script's call of trainerd.params() does "
                    f"not.{nearest(name, defaults)}"
                )
        return {**defaults, **self._values}

    def require_asked(self) -> None:
        """Require that the script has asked for its parameters before it trains.

        Raises:
          EntryError: it has not, so they have no effect.
        """
        if self._values and not self._is_asked:
            raise EntryError(
                f"entry = {self._entry!r}: [params] has {', '.join(map(repr, self._values))}, and the script has not "
                "called trainerd.params() before it trains. Call it, as in "
                "`trainerd.params(learning_rate=1e-3)`, or remove the parameters."
            )


_running = process_wide("params", list[ScriptParams]())


def giving(params: ScriptParams) -> contextlib.AbstractContextManager[None]:
    """Have a script get these parameters while the block runs."""
    return within(_running, params)


def require_asked() -> None:
    """Require that the script that runs, if one does, has asked for its parameters; see `ScriptParams`."""
    for each in _running:
        each.require_asked()


def params(**defaults: Any) -> dict[str, Any]:
    """Return the parameters of this script: the defaults, or what the table [params] and `--set` give in their place.

    Run by `python train.py`, it returns the defaults.

    Args:
      defaults: each parameter of the script, with its default.

    Raises:
      EntryError: the config gives a parameter that is not among the defaults.
    """
    return _running[-1].over(defaults) if _running else dict(defaults)


def require_taken(
    entry: str, given: Iterable[str], parameters: Mapping[str, inspect.Parameter], offered: Iterable[str]
) -> None:
    """Require that a function takes the parameters that the config gives.

    Args:
      entry: the entry, for messages.
      given: the names of the parameters.
      parameters: those of the function's signature.
      offered: the names of the arguments that trainerd gives itself.

    Raises:
      EntryError: it does not take one.
    """
    named = [name for name, each in parameters.items() if each.kind in _NAMED]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for name in given:
        if name in offered:
            raise EntryError(
                f"entry = {entry!r}: [params] has {name!r}, an argument that trainerd gives itself. Rename "
                "the parameter."
            )
        if name not in named and not takes_any:
            raise EntryError(
                f"entry = {entry!r}: [params] has {name!r}, and the function has no such argument."
                f"{nearest(name, [each for each in named if each not in offered])}"
            )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the nearest name as a question, or else all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" It has {', '.join(map(repr, names)) or 'none'}."
