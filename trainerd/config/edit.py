"""Changes keys of a config's text, and leaves the rest of it as it is, comments too."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence

import tomlkit

from trainerd.errors import UsageError


def read_changes(said: Sequence[str]) -> dict[str, str]:
    """Read changes such as "max_steps=3000" and "checkpoint.keep_last=9".

    Returns:
      Each key with its value in TOML. What is not TOML is a string.

    Raises:
      UsageError: one has no key.
    """
    found = {}
    for each in said:
        key, equals, value = (part.strip() for part in each.partition("="))
        if not equals or not key:
            raise UsageError(f"--set: expected KEY=VALUE, such as max_steps=3000, got {each!r}.")
        found[key] = value if _is_toml(value) else tomlkit.string(value).as_string()
    return found


def changed(text: str, changes: Mapping[str, str]) -> str:
    """Return the text of a config with other values of some keys.

    Args:
      text: the config, which is TOML.
      changes: a key, with its table and a dot before it, to its value in TOML.

    Raises:
      UsageError: a key is in what is not a table.
    """
    document = tomlkit.parse(text)
    for key, value in changes.items():
        *tables, name = key.split(".")
        place = document
        for table in tables:
            place = place.setdefault(table, tomlkit.table())
            if not isinstance(place, dict):
                raise UsageError(f"--set {key}={value}: `{table}` is a key of the config and not a table.")
        place[name] = tomlkit.parse(f"value = {value}")["value"]
    return tomlkit.dumps(document)


def _is_toml(value: str) -> bool:
    try:
        tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return False
    return "\n" not in value
