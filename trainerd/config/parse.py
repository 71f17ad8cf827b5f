"""Reads trainerd.toml into a frozen Config: every key, its type, unit and default in one place.

A key is one line: its annotation validates it, and docs/config.md lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainerd.config import tables
from trainerd.config.bare_script import is_script, keys_of
from trainerd.config.destination import Destination
from trainerd.config.metric_goals import Best, MetricTarget
from trainerd.config.schema import NOT_KEYS, Config, folder_of, rundir_of
from trainerd.config.training_hours import parse_days, parse_span
from trainerd.errors import ConfigError
from trainerd.rundir.names import check_name
from trainerd.rundir.paths import logdir_mistake
from trainerd.system.absolute import absolute

NAME = "trainerd.toml"
JOB = "job.py"  # beside it, as `trainerd init` writes it
_ADVICE = "`trainerd init DIR` writes one to start from."


def load(path: Path) -> Config:
    """Read a config file. A script stands for a config: the one beside it that names it, or one of its own.

    Raises:
      ConfigError: it cannot be read, or holds mistakes; all of them are in the message.
    """
    path = _config_of(absolute(path))
    if is_script(path):
        return parse(keys_of(path), path=path, folder=Path.cwd())
    return parse(tables.read(path, _ADVICE), path=path)


def _config_of(path: Path) -> Path:
    """Return the config beside a script, if that names it; else the same path."""
    beside = path.with_name(NAME)
    names_it = is_script(path) and beside.is_file() and tables.read(beside, _ADVICE).get("entry") == path.name
    return beside if names_it else path


def load_rundir(path: Path) -> Path:
    """Return the run directory that a config file names, even if other keys are wrong: a run may be training there.

    Raises:
      ConfigError: it cannot be read, or does not name one.
    """
    path = _config_of(absolute(path))
    if is_script(path):
        return parse(keys_of(path), path=path, folder=Path.cwd()).rundir
    try:
        data = tables.read(path, _ADVICE)
    except ConfigError as error:
        raise ConfigError(f"{error} To name a run without a config, use `--logdir`.") from None
    logdir, folder = data.get("logdir"), folder_of(path, data.get("job_folder"))
    if not isinstance(logdir, str) or not logdir or _logdir_mistakes(logdir, folder):
        return parse(data, path=path).rundir
    return rundir_of(folder, logdir)


def parse(data: dict[str, Any], *, path: Path | None = None, folder: Path | None = None) -> Config:
    """Validate what a config file holds.

    Args:
      data: the tables and keys, as tomllib gives them.
      path: the file, for messages; None if there is none.
      folder: what relative paths start from. Default: that of the key `job_folder`, or the file's own.

    Raises:
      ConfigError: with every mistake in its message.
    """
    reader = tables.Tables(Config, NOT_KEYS)
    config: Config = reader.read(data)
    mistakes = reader.mistakes
    folder = folder or (folder_of(path, data.get("job_folder")) if path else Path.cwd())
    mistakes += _read_mistakes("name", data.get("name"), check_name)
    for tag in tags if isinstance(tags := data.get("tags"), list) else []:
        mistakes += _read_mistakes("tags", tag, check_name)
    mistakes += _read_mistakes("target", data.get("target"), MetricTarget.parse)
    if isinstance(checkpoint := data.get("checkpoint"), dict):
        mistakes += _read_mistakes("checkpoint.best", checkpoint.get("best"), Best.parse)
    if isinstance(copy := data.get("copy"), dict):
        mistakes += _destination_mistakes(copy.get("to"))
    if isinstance(when := data.get("when"), dict):
        mistakes += _when_mistakes(when)
    if data.get("deterministic") is True and "seed" not in data:
        mistakes.append("deterministic: it needs a `seed`, such as seed = 1")
    mistakes += _logdir_mistakes(data.get("logdir"), folder)
    if "script" in data and not str(data.get("entry")).endswith(".py"):
        mistakes.append('script: this table is for an `entry` that is a script, such as "train.py"')
    tables.require_none(mistakes, path)
    return replace(config, path=path, folder=folder)


def _read_mistakes(name: str, value: object, read: Callable[[str], object]) -> list[str]:
    if isinstance(value, str):
        try:
            read(value)
        except ValueError as error:
            return [f"{name}: {error}, got {value!r}"]
    return []


def _destination_mistakes(url: object) -> list[str]:
    """Return what is wrong with the URL of a copy. It is not repeated: it may hold a secret."""
    if isinstance(url, str):
        try:
            Destination.parse(url)
        except ValueError as error:
            return [f"copy.to: {error}"]
    return []


def _when_mistakes(when: dict[str, Any]) -> list[str]:
    mistakes: list[str] = []
    for name, read in (("hours", parse_span), ("days", parse_days)):
        value = when.get(name)
        for each in value if isinstance(value, list) else [value]:
            mistakes += _read_mistakes(f"when.{name}", each, read)
    most, resume = when.get("max_temp"), when.get("resume_temp")
    if isinstance(resume, int | float) and most is None:
        mistakes.append("when.resume_temp: it needs a `max_temp`, such as max_temp = 85")
    elif isinstance(resume, int | float) and isinstance(most, int | float) and resume >= most:
        mistakes.append(f"when.resume_temp: expected a temperature below `max_temp`, which is {most:g}, got {resume:g}")
    return mistakes


def _logdir_mistakes(logdir: object, folder: Path) -> list[str]:
    if not isinstance(logdir, str):
        return []
    try:
        mistake = logdir_mistake(rundir_of(folder, logdir))
    except RuntimeError:
        mistake = f"{logdir!r} begins with the home directory of a user who has none here"
    return [f"logdir: {mistake}"] if mistake else []
