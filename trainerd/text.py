"""Numbers and names as a person reads them."""

from __future__ import annotations

import difflib
import math
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping

_KEPT = dict.fromkeys(map(ord, "\n\t"))
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def size(count: float) -> str:
    """Format a number of bytes with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def counted(count: int, noun: str) -> str:
    """Return a number of things, such as "1 step" and "2,000 steps"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def next_start(step: int | None) -> str:
    """Return what the next start of a run does, after "the next start".

    Args:
      step: of the newest checkpoint; None if there is none.
    """
    if step is None:
        return "begins at step 0, since there is no checkpoint yet"
    return f"resumes from step {step}"


def an(noun: str) -> str:
    """Return a noun with its article, such as "a list" and "an int"."""
    spelt = noun.lower()
    is_vowel = spelt[:1] in tuple("aeiou") and not spelt.startswith(("uni", "use", "uint", "eu", "one"))
    is_vowel = is_vowel or spelt.startswith(("nd", "hour"))
    return f"{'an' if is_vowel else 'a'} {noun}"


def type_of(value: object) -> str:
    """Return the type of a value with its article; "None" for None."""
    return "None" if value is None else an(type(value).__name__)


def printable(text: str) -> str:
    """Return a text that may come from anybody in a form that a terminal, a journal or a page can show.

    Control characters, which a terminal obeys, and marks that change the direction of writing become escapes. Line
    breaks and tabs stay. Colours are dropped.
    """
    if text.isprintable() or text.translate(_KEPT).isprintable():
        return text
    return "".join(letter if _is_shown(letter) else _escape(letter) for letter in without_colours(text))


def without_colours(text: str) -> str:
    """Drop the sequences that set colours and bold type, which Keras puts into its messages."""
    return _COLOUR.sub("", text)


def _is_shown(letter: str) -> bool:
    return letter.isprintable() or letter in "\n\t" or unicodedata.category(letter) == "Zs"


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def no_metric(wanted: str, metrics: Iterable[str]) -> str | None:
    """Return a message for a job that has these metrics but not the wanted one; None if it has the wanted one."""
    names = sorted(metrics)
    if wanted in names:
        return None
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(names) or 'none'}."
    return f"the job has no metric {wanted!r}. {hint}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return " Did you mean NAME?" with the nearest of the names that exist; empty if none is near."""
    near = difflib.get_close_matches(given, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def figure(value: float) -> str:
    """Format a metric. state.json has null for NaN and for both infinities, so they look the same here."""
    return f"{value:.5g}" if math.isfinite(value) else "not finite"


def figures(values: Mapping[str, float]) -> str:
    """Format metrics for a line of the log."""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def seconds(count: float) -> str:
    """Format a span of time."""
    if not math.isfinite(count):
        return "?"
    if count < 10:
        return f"{count:.1f} s"
    if count < 120:
        return f"{count:.0f} s"
    minutes, hours = int(count // 60), int(count // 3600)
    if hours < 2:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def is_plain_word(text: str) -> bool:
    """Return whether a shell takes a text as it is. Only such a text is offered as a completion, which nobody quotes.

    Anybody may have written the name of a run or a metric: `$(rm x)` would be a command, and an escape sequence reaches
    the terminal.
    """
    return shlex.quote(text) == text
