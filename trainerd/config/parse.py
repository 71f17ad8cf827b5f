"""trainerd.toml to a frozen Config: every key, its type, unit and default in one place.

A key is one line here: its annotation is what validates it, and docs/config.md lists what stands here.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from trainerd.config.metric_goals import Best, Target
from trainerd.errors import ConfigError
from trainerd.rundir.paths import logdir_mistake

NAME = "trainerd.toml"

Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Hours = Annotated[float, Meta(ge=0, le=1e6)]
Share = Annotated[float, Meta(ge=0.0001, le=1)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Positive = Annotated[int, Meta(ge=1, le=2**62)]


def _key(default: Any, unit: str, text: str) -> Any:
    """One key: its default, its unit, and what it does."""
    factory = {"default_factory": default} if callable(default) else {"default": default}
    return field(**factory, metadata={"unit": unit, "text": text})


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written, and how many are kept."""

    save_model_secs: Seconds | Literal["auto"] = _key(
        600.0, "s", 'Seconds between checkpoints. "auto": as few as `max_overhead` allows. 0: none on a clock.'
    )
    max_overhead: Share = _key(0.01, "", 'With "auto", the share of the time that saving may cost.')
    save_model_steps: Count = _key(0, "steps", "Steps between checkpoints. 0: none by steps.")
    keep_last: Positive = _key(5, "checkpoints", "How many of the newest checkpoints are kept.")
    keep_every_hours: Hours = _key(
        0.0, "h", "Besides those, one of every so many hours of training is kept for good. 0: none."
    )
    best: str | None = _key(None, "", 'What the best checkpoint is, such as "max val_accuracy" or "min loss".')
    keep_best: Positive = _key(1, "checkpoints", "How many of the best are kept, where `best` is set.")


@dataclass(frozen=True, kw_only=True)
class SummaryConfig:
    """What is written for TensorBoard, and when."""

    save_summaries_secs: Seconds = _key(
        120.0, "s", "Seconds between summaries: histograms of the weights, kernels, the job's own. 0: none."
    )
    metrics_secs: Seconds = _key(
        10.0, "s", "Seconds between points of the metrics' curves (loss, accuracy, …). 0: none on a clock."
    )
    metrics_steps: Count = _key(
        0, "steps", "Steps between points of those curves; the loop need not stop for them. 0: none by steps."
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """When the job's `evaluate` runs."""

    evaluate_secs: Seconds = _key(600.0, "s", "Seconds between evaluations. 0: none on a clock.")
    evaluate_steps: Count = _key(0, "steps", "Steps between evaluations. 0: none by steps.")


@dataclass(frozen=True, kw_only=True)
class WatchdogConfig:
    """How long what is not a step may take before systemd is allowed to end the process.

    Steps themselves have `WatchdogSec=` of the unit.
    """

    first_step_secs: Seconds = _key(
        1800.0,
        "s",
        "From the start until the first step is done: import, restore, compilation; also between two sessions of a "
        "program. 0: no deadline.",
    )
    evaluate_secs: Seconds = _key(3600.0, "s", "One evaluation, or one writing of summaries. 0: no deadline.")
    save_secs: Seconds = _key(300.0, "s", "A save in which no byte gets written. 0: no deadline.")
    pause_secs: Seconds = _key(
        60.0,
        "s",
        "How long a pause waits for a step that calls Python, such as one that waits for worker processes, and for a "
        "program that does not end its loop and runs no step. After that the newest whole state is saved, and the "
        "process ends. 0: for ever.",
    )


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """What is logged."""

    level: Literal["debug", "info", "warning", "error"] = _key("info", "", "The least level that is logged.")
    progress_secs: Seconds = _key(60.0, "s", "Seconds between lines of progress. 0: none.")


@dataclass(frozen=True, kw_only=True)
class Config:
    """What one trainerd.toml says. Paths are absolute."""

    entry: Annotated[str, Meta(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$")] = _key(
        MISSING, "", "The job: `module:attribute`. The config's folder is on the import path."
    )
    logdir: Annotated[str, Meta(min_length=1)] = _key(
        MISSING, "", "The run directory, relative to the config's folder. All of a run is in it."
    )
    max_steps: Positive | None = _key(None, "steps", "Where training ends. Left out: train for ever.")
    target: str | None = _key(None, "", 'Ends training when a metric reaches a value, such as "val_accuracy >= 0.97".')
    stop_on_nan: bool = _key(
        True, "", "Stop when the loss is NaN or infinite, and never save variables that hold a NaN."
    )
    deterministic: bool = _key(
        False, "", "Have every op give the same bits each time, so that runs repeat exactly. Slower; needs `seed`."
    )
    seed: Annotated[int, Meta(ge=0, lt=2**32)] | None = _key(
        None, "", "Seeds Python, NumPy, TensorFlow and Keras before the job is built. Left out: each new run differs."
    )
    input_position: Literal["exact", "restart"] = _key(
        "exact", "", "`exact`: the dataset's position is saved. `restart`: each start begins it anew."
    )
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    summary: SummaryConfig = field(default_factory=SummaryConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    watchdog: WatchdogConfig = field(default_factory=WatchdogConfig)
    log: LogConfig = field(default_factory=LogConfig)
    path: Path | None = None
    folder: Path = field(default_factory=Path.cwd)
    accept_changes: bool = False

    @property
    def rundir(self) -> Path:
        """The run directory, absolute."""
        return _rundir(self.folder, self.logdir)

    def parsed_best(self) -> Best | None:
        """What the best checkpoint is, or None where it was not said."""
        return None if self.checkpoint.best is None else Best.parse(self.checkpoint.best)

    def parsed_target(self) -> Target | None:
        """The target, or None where training does not end at one."""
        return None if self.target is None else Target.parse(self.target)


_NOT_KEYS = {"path", "folder", "accept_changes"}  # not of the file


def load(path: Path) -> Config:
    """Read a config file.

    Raises:
      ConfigError: it cannot be read, or holds mistakes; all of them are in the message.
    """
    path = path.absolute()
    return parse(_read(path), path=path)


def load_rundir(path: Path) -> Path:
    """The run directory that a config file names, whatever else is wrong in it: a run may be training there.

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
    return _rundir(path.parent, logdir)


def _rundir(folder: Path, logdir: str) -> Path:
    return (folder / Path(logdir).expanduser()).absolute()


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
      path: the file, for messages; None where there is none.
      folder: what relative paths start from; the file's own folder where it is left out.

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
        mistake = logdir_mistake(_rundir(folder, logdir))
    except RuntimeError:
        mistake = f"{logdir!r} begins with the home directory of a user who has none here"
    return [f"logdir: {mistake}"] if mistake else []


def _table(cls: type[Any], data: dict[str, Any], prefix: str, mistakes: list[str]) -> Any:
    """Read one table into its dataclass, and append what is wrong with it to `mistakes`."""
    types = get_type_hints(cls, include_extras=True)
    keys = {f.name: f for f in fields(cls) if f.name not in _NOT_KEYS}
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
    """The strings that a key may be, where these are all there are."""
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


def every_key() -> list[tuple[str, Any, Any]]:
    """Every key as (its name with its table, its type, its dataclass field), in the order of the file."""
    found: list[tuple[str, Any, Any]] = []
    for cls, prefix in ((Config, ""), *((t, f"{n}.") for n, t in _tables().items())):
        types = get_type_hints(cls, include_extras=True)
        found += [
            (prefix + f.name, types[f.name], f)
            for f in fields(cls)
            if f.name not in _NOT_KEYS and not is_dataclass(types[f.name])
        ]
    return found


def _tables() -> dict[str, type[Any]]:
    types = get_type_hints(Config)
    return {f.name: types[f.name] for f in fields(Config) if is_dataclass(types[f.name])}
