"""Reads TOML's tables into frozen dataclasses: every mistake is found, and reported in plain words.

A key is one field made by `key`: its annotation validates it. A key that is a mapping is a table with free names.
"""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from trainerd.errors import ConfigError
from trainerd.text import counted, size

_LIMIT = 1 << 20  # bytes


def key(default: Any, unit: str, text: str) -> Any:
    """Make one key from its default, its unit, and a text that says what it does."""
    factory = {"default_factory": default} if callable(default) else {"default": default}
    return field(**factory, metadata={"unit": unit, "text": text})


def keys_of(cls: type[Any], not_keys: Collection[str] = ()) -> list[tuple[str, Any, Any]]:
    """Return every key of a file, in its order, as (its name with its table, its type, its dataclass field)."""
    types = get_type_hints(cls)
    tables = {f.name: types[f.name] for f in fields(cls) if is_dataclass(types[f.name]) and f.name not in not_keys}
    found: list[tuple[str, Any, Any]] = []
    for each, prefix in ((cls, ""), *((table, f"{name}.") for name, table in tables.items())):
        types = get_type_hints(each, include_extras=True)
        found += [
            (prefix + f.name, types[f.name], f)
            for f in fields(each)
            if f.name not in not_keys and not is_dataclass(types[f.name])
        ]
    return found


def read(path: Path, advice: str) -> dict[str, Any]:
    """Read a file.

    Args:
      path: the file.
      advice: what to do if it is missing.

    Raises:
      ConfigError: it cannot be read.
    """
    try:
        if path.exists() and not path.is_file():  # a FIFO would be waited for
            raise ConfigError(f"cannot read {path}: it is not a regular file.")
        with path.open("rb") as file:
            content = file.read(_LIMIT + 1)
        if len(content) > _LIMIT:
            raise ConfigError(f"cannot read {path}: it is larger than {size(_LIMIT)}, the most that trainerd reads.")
        return tomllib.loads(content.decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no {path}. {advice}") from None
    except UnicodeDecodeError as error:
        said = f"{error.reason} at byte {error.start}"
        raise ConfigError(f"{path} is not text in UTF-8: {said}. Save it as UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"cannot read {path}: its values are nested too deeply.") from None
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, content, error) from None


def _syntax_error(path: Path, content: bytes, error: tomllib.TOMLDecodeError) -> ConfigError:
    """Return the error of a file that is not TOML: where, why, and what to do if that is plain from the line."""
    said = re.fullmatch(r"(?P<why>.*) \(at (?P<where>.*)\)", str(error))
    why, where = (said["why"], said["where"]) if said else (str(error), "")
    place = re.match(r"line (\d+)", where)
    lines = content.decode("utf-8-sig").splitlines()
    line = lines[int(place[1]) - 1] if place and int(place[1]) <= len(lines) else ""
    comma = f", {where}" if where else ""
    return ConfigError(f"{path}{comma}: this is not TOML: {why[0].lower()}{why[1:]}.{_hint(line)}")


def _hint(line: str) -> str:
    """Return advice for `key = word`, which most often is what makes a file no TOML; else nothing.

    The word is not repeated: it may be a secret.
    """
    found = re.fullmatch(r"\s*([\w.-]+)\s*=\s*([A-Za-z_./~][^\"'#\[\]{}]*?)\s*(#.*)?", line)
    if found is None:
        return ""
    name, value = found[1], found[2].lower()
    return f" Write {name} = {value}." if value in ("true", "false") else f' A string needs quotes: {name} = "text".'


class MistakesError(ConfigError):
    """A file holds mistakes.

    Attributes:
      mistakes: each of them, with its key and a colon in front.
    """

    mistakes: Sequence[str] = ()


def require_none(mistakes: list[str], path: Path | None) -> None:
    """Raise an error that lists all mistakes, if there are any.

    Raises:
      MistakesError: there are.
    """
    if mistakes:
        where = str(path) if path else "the configuration"
        count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        error = MistakesError("\n".join([f"{where} has {count}:", *(f"  {m}" for m in mistakes)]))
        error.mistakes = mistakes
        raise error


class Tables:
    """Reads the tables of one kind of file.

    Args:
      cls: the dataclass of the whole file.
      not_keys: those of its fields that are not of the file.
      is_secret: whether values must not be in a message, which then has their types.

    Attributes:
      mistakes: what was wrong so far, each with its key.
    """

    def __init__(self, cls: type[Any], not_keys: Collection[str] = (), *, is_secret: bool = False) -> None:
        self._is_secret = is_secret
        self.mistakes: list[str] = []
        self._cls = cls
        self._not_keys = not_keys

    def read(self, data: dict[str, Any]) -> Any:
        """Read a file's content. Returns None if there is a mistake."""
        return self._table(self._cls, data, "")

    def _table(self, cls: type[Any], data: dict[str, Any], prefix: str) -> Any:
        types = _types_of(cls)  # type: ignore[arg-type]  # mypy does not know that each class can be hashed
        keys = {f.name: f for f in fields(cls) if f.name not in self._not_keys}
        self.mistakes += [self._unknown(prefix, name, value, keys) for name, value in data.items() if name not in keys]
        values: dict[str, Any] = {}
        for name, each in keys.items():
            where = prefix + name
            if name not in data:
                if each.default is MISSING and each.default_factory is MISSING:
                    self.mistakes.append(f"{where}: missing. {each.metadata['text']}")
            elif is_dataclass(types[name]) or get_origin(types[name]) is Mapping:
                read = self._table if is_dataclass(types[name]) else self._free_table
                if isinstance(data[name], dict):
                    values[name] = read(types[name], data[name], f"{where}.")
                else:
                    self.mistakes.append(f"{where}: expected a table, [{where}], got {self._got(data[name])}")
            else:
                values[name] = self._value(types[name], data[name], where, each.metadata["unit"])
        return None if self.mistakes else cls(**values)

    def _free_table(self, kind: Any, data: dict[str, Any], prefix: str) -> dict[str, Any]:
        """Read a table whose names are the user's own. They are validated too."""
        of_name, of_value = get_args(kind)
        for name in data:
            self._value(of_name, name, f"{prefix}{name}", "")
        return {name: self._value(of_value, value, f"{prefix}{name}", "") for name, value in data.items()}

    def _value(self, kind: Any, value: Any, where: str, unit: str) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            of_unit = f" (in {unit})" if unit else ""
            expected = _plain(kind, str(error), value)
            self.mistakes.append(f"{where}: {expected}{of_unit}, got {self._got(value, expected)}")
            return None

    def _got(self, value: object, expected: str = "") -> str:
        """Return a wrong value for a message. A number where one is expected is not a secret."""
        is_number = isinstance(value, int | float) and "number" in expected
        return repr(value) if is_number or not self._is_secret else _kind_of(value)

    def _unknown(self, prefix: str, name: str, value: object, keys: dict[str, Any]) -> str:
        """Return the message for a key that does not exist, with the nearest right one."""
        everywhere = {f"{prefix}{each}": each for each in keys}
        everywhere |= {where: where.rpartition(".")[2] for where, _, _ in keys_of(self._cls, self._not_keys)}
        # Within its own table a name that is hardly alike is nearer than the very same name of another one.
        near = difflib.get_close_matches(name, keys, n=1, cutoff=0.5)
        same = [where for where, each in everywhere.items() if each == name and not near]
        if same:
            hint = f" Did you mean `{same[0]}`?"
        elif near:
            hint = f" Did you mean `{prefix}{near[0]}`?"
        else:
            far = difflib.get_close_matches(name, list(everywhere.values()), n=1, cutoff=0.6)
            hint = f" Did you mean `{next(w for w, k in everywhere.items() if k == far[0])}`?" if far else ""
        kind = "table" if isinstance(value, dict) else "key"
        return f"{prefix}{name}: this {kind} does not exist.{hint}"


@functools.cache
def _types_of(cls: type[Any]) -> dict[str, Any]:
    """Return the types of the fields of a class. To compile them from text takes longer than to read a file."""
    return get_type_hints(cls, include_extras=True)


def _plain(kind: Any, message: str, value: object) -> str:
    """Return msgspec's message in the words of a person who writes TOML."""
    choices = _choices(kind)
    if _is_list(kind):
        return _of_list(choices, value) if choices else "expected a list of strings"
    if choices:
        parts = [part for part in get_args(kind) if get_origin(part) is not Literal and part is not NoneType]
        if not set(parts) <= set(choices):  # a number, or one of these
            return "expected " + (_description(kind) or f'a number, 0 or more, or "{choices[0]}"')
        return "expected one of " + ", ".join(f'"{c}"' for c in choices)
    if described := _description(kind):
        return f"expected {described}"
    message = message.split(", got ")[0].replace(" | null", "")
    words = {"`int`": "a whole number", "`float`": "a number", "`str`": "a string", "`bool`": "true or false"}
    for name, word in words.items():
        message = message.replace(name, word)
    message = re.sub("of length >= ([0-9]+)", r"of at least \1 characters", message)
    message = re.sub("of length <= ([0-9]+)", r"of at most \1 characters", message)
    return message[0].lower() + message[1:]


def _kind_of(value: object) -> str:
    """Return the words for a value's type in TOML, without the value."""
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return f"a string of {counted(len(value), 'character')}"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or a time"


def _description(kind: Any) -> str:
    """Return the description of a key's value in its `Meta`; empty if there is none."""
    parts = (kind, *get_args(kind))
    found = [meta.description for part in parts for meta in getattr(part, "__metadata__", ()) if meta.description]
    return found[0] if found else ""


def _is_list(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is tuple


def _of_list(choices: list[str], value: object) -> str:
    """Return the message for a wrong list of choices: the first that is not a choice, with the nearest right one."""
    given = value if isinstance(value, list) else []
    wrong = next((str(each) for each in given if each not in choices), "")
    near = difflib.get_close_matches(wrong, choices, n=1)
    hint = f'there is no "{wrong}". Did you mean "{near[0]}"? ' if near else ""
    return f"{hint}expected a list of " + ", ".join(f'"{c}"' for c in choices)


def _choices(kind: Any) -> list[str]:
    """Return the strings that a key may be, if it may be nothing else; those in a list, for a list."""
    return [choice for part in (kind, *get_args(kind)) for choice in get_args(part) if isinstance(choice, str)]
