"""The types of options and arguments, and the message for a command line that is wrong.

A message names the option, what it expects and what it got: `--max-steps: expected a whole number, got 'abc'`.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from typing import Any

import click

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class GivenPath(click.Path):
    """A path that is not empty: an empty one, as from an unset variable of a shell, would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert it, unless it is empty."""
        if not str(value):
            self.fail("expected a path, got ''.", param, ctx)
        if not self.file_okay and os.path.isfile(value):  # noqa: PTH113  no error where it may not be read
            self.fail(f"expected a directory, got the file {str(value)!r}.", param, ctx)
        if not self.dir_okay and os.path.isdir(value):  # noqa: PTH112
            self.fail(f"expected a file, got the directory {str(value)!r}.", param, ctx)
        return super().convert(value, param, ctx)


class Whole(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A whole number, shown as N.

    Args:
      min: the smallest that is taken; None for no limit.
      max: the largest that is taken; None for no limit.
    """

    name = "n"

    def __init__(self, min: int | None = None, max: int | None = None) -> None:
        self._min, self._max = min, max

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        try:
            found = int(value)
        except ValueError:
            self.fail(f"expected a whole number, got {value!r}.", param, ctx)
        is_small, is_large = self._min is not None and found < self._min, self._max is not None and found > self._max
        if is_small or is_large:
            self.fail(f"expected a whole number{_limits(self._min, self._max)}, got {value}.", param, ctx)
        return found


class Real(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A finite number, shown as X.

    Args:
      min: the smallest that is taken; None for no limit.
    """

    name = "x"

    def __init__(self, min: float | None = None) -> None:
        self._min = min

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            self.fail(f"expected a number, got {value!r}.", param, ctx)
        if self._min is not None and found < self._min:
            self.fail(f"expected a number{_limits(self._min, None)}, got {value}.", param, ctx)
        return found


class OneOf(click.Choice):  # type: ignore[type-arg]  # generic since click 8.5
    """One of some words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it, and name the nearest word if it is none of them."""
        words = [str(each) for each in self.choices]
        if str(value) not in words:
            near = difflib.get_close_matches(str(value), words, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            self.fail(f"expected one of {', '.join(words)}, got {value!r}.{hint}", param, ctx)
        return super().convert(value, param, ctx)


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A span of time, such as 90s, 30m, 12h or 2d, in seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", str(value))
        if found is None:
            self.fail(f"expected a duration such as 90s, 30m, 12h or 2d, got {value!r}.", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


def message_of(error: click.UsageError) -> str:
    """Return the message for a wrong command line: what is wrong, with the value, and where help is."""
    return f"{_what_is_wrong(error)}\n{_where_help_is(error)}"


def _what_is_wrong(error: click.UsageError) -> str:
    if isinstance(error, click.MissingParameter) and error.param is not None:
        kind = error.param.type
        choices = f": one of {', '.join(map(str, kind.choices))}" if isinstance(kind, click.Choice) else ""
        return f"{_name_of(error.param)} is missing{choices}."
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_name_of(error.param)}: {_lower(error.message)}"
    if isinstance(error, click.NoSuchOption):
        near = error.possibilities or ()
        return f"there is no option {error.option_name}." + (f" Did you mean {' or '.join(near)}?" if near else "")
    if isinstance(error, click.BadOptionUsage):
        said = error.message.removeprefix(f"Option {error.option_name!r} ")
        return f"{error.option_name}: {_lower(said)}"
    return _lower(error.format_message())


def _name_of(param: click.Parameter) -> str:
    """Return a parameter as the help shows it: an option by its long form, an argument in capital letters."""
    if isinstance(param, click.Option) and not param.hidden:
        return max(param.opts, key=len)
    name = (param.metavar or param.human_readable_name.upper()).removesuffix("...")
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def _where_help_is(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else "trainerd"
    takes_script = error.ctx is not None and any(each.name == "script" for each in error.ctx.command.params)
    if isinstance(error, click.NoSuchOption) and takes_script:
        example = f"{command} train.py -- {error.option_name}"
        return f"The options of a script come after `--`, as in `{example}`. See `{command} --help`."
    return f"See `{command} --help`."


def _limits(low: float | None, high: float | None) -> str:
    if low is None:
        return "" if high is None else f", {high:g} or less"
    return f", {low:g} or more" if high is None else f" from {low} to {high}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
