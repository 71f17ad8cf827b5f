"""Changes keys of a config: in its text, whose rest stays as it is, comments too; or in what was read from it."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, replace
from typing import Any

import tomlkit

from trainerd.config import parse as configs
from trainerd.config import tables
from trainerd.config.bare_script import is_script
from trainerd.config.destination import Destination
from trainerd.config.schema import NOT_KEYS, Config, every_key
from trainerd.errors import ConfigError, UsageError


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


def as_toml(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values by key as changes: each in TOML."""
    return {key: tomlkit.item(value).as_string() for key, value in values.items()}


def copy_beside(config: Config, name: str) -> dict[str, str]:
    """Return the value of `copy.to` for another run that is made of a config: no two runs share a copy.

    Args:
      config: the config.
      name: what the URL of the copy ends with.
    """
    return {} if config.copy.to is None else {"copy.to": str(Destination.parse(config.copy.to).beside(name))}


def with_changes(config: Config, changes: Mapping[str, str]) -> Config:
    """Return a config with other values of some keys.

    Args:
      config: the config.
      changes: see `changed`.

    Raises:
      ConfigError: a change makes it wrong.
      UsageError: a key is in what is not a table.
    """
    if not changes:
        return config
    has_file = config.path is not None and not is_script(config.path)
    text = changed(tomlkit.dumps(_keys_of(config)), changes)
    with blaming(changes):
        found = configs.parse(tomllib.loads(text), path=config.path, folder=None if has_file else config.folder)
    return replace(found, **{name: getattr(config, name) for name in NOT_KEYS})


def _keys_of(config: Config) -> dict[str, Any]:
    """Return the keys of a config that have another value than their default, as TOML has them."""
    found: dict[str, Any] = {}
    for key, _, field in every_key():
        table, _, name = key.rpartition(".")
        value = getattr(getattr(config, table) if table else config, name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if value != default:
            place = found.setdefault(table, {}) if table else found
            place[name] = value
    return found


@contextlib.contextmanager
def blaming(changes: Mapping[str, str]) -> Iterator[None]:
    """Report the mistakes of a changed config as those of `--set`, while the block runs: no file has them.

    Args:
      changes: see `changed`.

    Raises:
      ConfigError: there are mistakes.
    """
    try:
        yield
    except tables.MistakesError as error:
        raise _blamed(error.mistakes, changes) from None


def _blamed(mistakes: Sequence[str], changes: Mapping[str, str]) -> ConfigError:
    found = []
    for mistake in mistakes:
        name, _, what = mistake.partition(": ")
        found += [f"--set {key}={said}: {what}" for key, said in changes.items() if f"{key}.".startswith(f"{name}.")]
    every = " ".join(f"--set {key}={said}" for key, said in changes.items())
    return ConfigError("\n".join(found or (f"{every}: {mistake}" for mistake in mistakes)))


def _is_toml(value: str) -> bool:
    try:
        tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return False
    return "\n" not in value
