"""trainerd.toml to a frozen Config: every key, its type, unit and default in one place.

A key is one line: its annotation validates it, and docs/config.md lists it.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from trainerd.config.metric_goals import Best, Target
from trainerd.config.schema import NOT_KEYS, Config, every_key, rundir_of
from trainerd.errors import ConfigError
from trainerd.rundir.paths import logdir_mistake

NAME = "trainerd.toml"


def load(path: Path) -> Config:
    """Read a config file.

    Raises:
      ConfigError: it cannot be read, or holds mistakes; all of them are in the message.
    """
    path = path.absolute()
    return parse(_read(path), path=path)


def load_rundir(path: Path) -> Path:
    """The run directory that a config file names, even if other keys are wrong: a run may be training there.

    Raises:
      ConfigError: it cannot be read, or does not name one.
    """
    path = path.absolute()
    try:
        data = _read(path)
    except ConfigError as error:
        raise ConfigError(f"{error} A run is found without it by `--logdir`.") from None
    logdir = data.get("logdir")
    if not isinstance(logdir, str) or not logdir or _logdir_mistakes(logdir, path.parent):
        return parse(data, path=path).rundir
    return rundir_of(path.parent, logdir)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():  # a FIFO would be waited for
            raise ConfigError(f"cannot read {path}: it is no regular file.")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no {path}. `trainerd init DIR` writes one to start from.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f'{path} is not TOML: {error}. Strings need quotes: key = "text".') from None


def parse(data: dict[str, Any], *, path: Path | None = None, folder: Path | None = None) -> Config:
    """Validate what a config file holds.

    Args:
      data: the tables and keys, as tomllib gives them.
      path: the file, for messages; None if there is none.
      folder: what relative paths start from. Default: the file's own folder.

    Raises:
      ConfigError: with every mistake in its message.
    """
    mistakes: list[str] = []
    config: Config = _table(Config, data, "", mistakes)
    folder = folder or (path.parent if path else Path.cwd())
    mistakes += _read_mistakes("target", data.get("target"), Target.parse)
    if isinstance(checkpoint := data.get("checkpoint"), dict):
        mistakes += _read_mistakes("checkpoint.best", checkpoint.get("best"), Best.parse)
    if data.get("deterministic") is True and "seed" not in data:
        mistakes.append("deterministic: it needs a `seed`, such as seed = 1")
    mistakes += _logdir_mistakes(data.get("logdir"), folder)
    if mistakes:
        where = str(path) if path else "the configuration"
        raise ConfigError("\n".join([f"{where} has {_count(mistakes)}:", *(f"  {m}" for m in mistakes)]))
    return replace(config, path=path, folder=folder)


def _count(mistakes: list[str]) -> str:
    return "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"


def _read_mistakes(name: str, value: object, read: Callable[[str], object]) -> list[str]:
    if isinstance(value, str):
        try:
            read(value)
        except ValueError as error:
            return [f"{name}: {error}, got {value!r}"]
    return []


def _logdir_mistakes(logdir: object, folder: Path) -> list[str]:
    if not isinstance(logdir, str):
        return []
    try:
        mistake = logdir_mistake(rundir_of(folder, logdir))
    except RuntimeError:
        mistake = f"{logdir!r} begins with the home directory of a user who has none here"
    return [f"logdir: {mistake}"] if mistake else []


def _table(cls: type[Any], data: dict[str, Any], prefix: str, mistakes: list[str]) -> Any:
    """Read one table into its dataclass, and append what is wrong with it to `mistakes`."""
    types = get_type_hints(cls, include_extras=True)
    keys = {f.name: f for f in fields(cls) if f.name not in NOT_KEYS}
    mistakes += [_unknown(prefix, name, value, keys) for name, value in data.items() if name not in keys]
    values: dict[str, Any] = {}
    for name, key in keys.items():
        where = prefix + name
        if name not in data:
            if key.default is MISSING and key.default_factory is MISSING:
                mistakes.append(f"{where}: missing. {key.metadata['text']}")
        elif is_dataclass(types[name]):
            if isinstance(data[name], dict):
                values[name] = _table(types[name], data[name], f"{where}.", mistakes)
            else:
                mistakes.append(f"{where}: expected a table, [{where}], got {data[name]!r}")
        else:
            values[name] = _value(types[name], data[name], where, key.metadata["unit"], mistakes)
    return None if mistakes else cls(**values)


def _value(kind: Any, value: Any, where: str, unit: str, mistakes: list[str]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        of_unit = f" (in {unit})" if unit else ""
        mistakes.append(f"{where}: {_plain(kind, str(error))}{of_unit}, got {value!r}")
        return None


def _plain(kind: Any, message: str) -> str:
    """msgspec's message in the words of a person who writes TOML."""
    if choices := _choices(kind):
        if get_args(kind)[0] is not choices[0]:  # a number, or one of these
            return f'expected a number, 0 or more, or "{choices[0]}"'
        return "expected one of " + ", ".join(f'"{c}"' for c in choices)
    if "matching regex" in message:
        return 'expected "module:attribute"'
    message = message.split(", got ")[0].replace(" | null", "")
    words = {"`int`": "a whole number", "`float`": "a number", "`str`": "a string", "`bool`": "true or false"}
    for name, word in words.items():
        message = message.replace(name, word)
    return message[0].lower() + message[1:]


def _choices(kind: Any) -> list[str]:
    """The strings that a key may be, if it may be nothing else."""
    return [choice for part in (kind, *get_args(kind)) for choice in get_args(part) if isinstance(choice, str)]


def _unknown(prefix: str, name: str, value: object, keys: dict[str, Any]) -> str:
    """The message for a key that does not exist, with the nearest right one."""
    everywhere = {f"{prefix}{key}": key for key in keys}
    everywhere |= {where: where.rpartition(".")[2] for where, _, _ in every_key()}
    # Within its own table a name that is hardly alike is nearer than the very same name of another one.
    near = difflib.get_close_matches(name, keys, n=1, cutoff=0.5)
    same = [where for where, key in everywhere.items() if key == name and not near]
    if same:
        hint = f" Did you mean `{same[0]}`?"
    elif near:
        hint = f" Did you mean `{prefix}{near[0]}`?"
    else:
        far = difflib.get_close_matches(name, list(everywhere.values()), n=1, cutoff=0.6)
        hint = f" Did you mean `{next(w for w, k in everywhere.items() if k == far[0])}`?" if far else ""
    kind = "table" if isinstance(value, dict) else "key"
    return f"{prefix}{name}: there is no such {kind}.{hint}"
