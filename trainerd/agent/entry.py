"""An entry of the queue: a run that the agent trains. A person can read and edit its file."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from trainerd.config import tables
from trainerd.config.schema import Config
from trainerd.config.tables import key
from trainerd.rundir.registry import RegisteredRun
from trainerd.system.absolute import absolute

Priority = Annotated[int, Meta(ge=-1000, le=1000)]
Number = Annotated[int, Meta(ge=0, le=1024)]
Moment = Annotated[float, Meta(ge=0, le=1e11)]  # seconds since 1970 (UTC)
Text = Annotated[str, Meta(pattern=r"^[^\x00]+$", description="a text without NUL characters")]


@dataclass(frozen=True, kw_only=True)
class QueueEntry:
    """One entry, as its file has it."""

    config: Text = key(MISSING, "", "The config of the run, or a script without one.")
    logdir: Text = key(MISSING, "", "The run directory.")
    folder: Text = key(MISSING, "", "The folder in which the run is started.")
    priority: Priority = key(0, "", "A run with a higher number trains first, and takes the place of a lower one.")
    place: float = key(0.0, "", "The order among equal priorities: the lowest is first.")
    gpus: Number | None = key(None, "GPUs", "How many GPUs the run gets. Default: 1 if the agent has any.")
    after: str = key("", "", "The entry that must be done before this one starts. Empty: none.")
    begin_at: str = key(
        "", "", "The checkpoint of `after` that the run begins at: a step, `best` or `minimum`. Empty: at step 0."
    )
    retries: Number = key(0, "", "How often the run is started again after it failed.")
    set: tuple[str, ...] = key((), "", "Keys of the config that differ, each as KEY=VALUE.")
    max_steps: Annotated[int, Meta(ge=1)] | None = key(
        None,
        "steps",
        "Train until this step, in place of the config's `max_steps` and `target`. Default: the config's.",
    )
    forever: bool = key(False, "", "Train past the config's `max_steps` and `target`.")
    adopt: bool = key(False, "", "Of a script: replace its `model.fit` by `trainerd.keras.fit`.")
    arguments: tuple[str, ...] = key((), "", "The script's own arguments.")
    sweep: str = key("", "", "The folder of the sweep that it is a point of. Empty: none.")
    paused: bool = key(False, "", "Whether the entry is paused: `trainerd queue pause`.")
    since: Moment = key(0.0, "s", "When it was added or resumed, in seconds since 1970 (UTC).")

    @classmethod
    def of(cls, config: Config) -> QueueEntry:
        """Return the entry of a config's run. The config has a file, or stands for a script."""
        return cls(
            config=str(config.path),
            logdir=str(absolute(config.rundir)),
            folder=str(config.folder),
            set=config.options.set,
            max_steps=config.options.max_steps,
            forever=config.options.forever,
            adopt=config.script.adopt,
            arguments=config.script.arguments,
        )

    @classmethod
    def of_start(cls, run: RegisteredRun) -> QueueEntry | None:
        """Return the entry that trains a run as it was last started; None if a program of its own started it."""
        if run.config is None:
            return None
        script, options = run.script, run.options
        return cls(
            config=str(run.config),
            logdir=str(run.path),
            folder=str(script.folder if script is not None else run.config.parent),
            set=options.set,
            max_steps=options.max_steps,
            forever=options.forever,
            adopt=(script or options).adopt,
            arguments=(script or options).arguments,
        )

    @classmethod
    def read(cls, path: Path) -> QueueEntry:
        """Read a file.

        Raises:
          ConfigError: it cannot be read, or holds mistakes; all of them are in the message.
        """
        reader = tables.Tables(cls)
        found = reader.read(tables.read(path, "`trainerd queue` shows what is in the queue."))
        tables.require_none(reader.mistakes, path)
        entry: QueueEntry = found
        return entry

    def to_toml(self) -> str:
        """Return the content of its file: what differs from the defaults."""
        import tomlkit  # which the agent does without, most of the time

        content = tomlkit.document()
        content.add(tomlkit.comment("An entry of the queue. The agent reads it again when it changes."))
        defaults = asdict(QueueEntry(config="", logdir="", folder=""))
        for name, value in asdict(self).items():
            if value != defaults[name]:
                content[name] = list(value) if isinstance(value, tuple) else value
        return tomlkit.dumps(content)

    def gpus_of(self, count: int) -> int:
        """Return how many GPUs the run gets of so many that the agent has."""
        return min(1, count) if self.gpus is None else self.gpus

    def command(self) -> list[str]:
        """Return the arguments of `trainerd` that start the run as a daemon."""
        path = Path(self.config)
        is_script = path.suffix == ".py"
        typed = ["start", "--logdir", str(absolute(Path(self.logdir)))]
        typed += [] if is_script else ["--config", self.config]
        typed += ["--max-steps", str(self.max_steps)] if self.max_steps is not None else []
        typed += ["--forever"] * self.forever
        typed += [part for each in self.set for part in ("--set", each)]
        typed += [self.config] if is_script else []
        typed += ["--adopt"] * self.adopt
        return [*typed, *(["--", *self.arguments] if self.arguments else [])]
