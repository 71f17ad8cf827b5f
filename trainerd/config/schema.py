"""The keys of trainerd.toml: type, unit, default, text."""

from __future__ import annotations

import keyword
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from trainerd.config.bare_script import is_script
from trainerd.config.metric_goals import Best, MetricTarget
from trainerd.config.tables import key, keys_of
from trainerd.config.training_hours import TrainingHours
from trainerd.errors import ConfigError
from trainerd.rundir.paths import WORKERS
from trainerd.rundir.registry import PLAIN, StartOptions
from trainerd.system.absolute import absolute

Seconds = Annotated[float, Meta(ge=0, le=1e9)]


Hours = Annotated[float, Meta(ge=0, le=1e6)]


Share = Annotated[float, Meta(ge=0.0001, le=1)]


ShareOrNone = Annotated[float, Meta(ge=0, le=1)]


Count = Annotated[int, Meta(ge=0, le=2**62)]


Devices = (
    Literal["all"]
    | Annotated[int, Meta(ge=1, le=1024, description='"all", a whole number, 1 or more, or a list of names')]
    | Annotated[tuple[str, ...], Meta(min_length=1)]
)
Positive = Annotated[int, Meta(ge=1, le=2**62)]


TextOrTexts = str | Annotated[tuple[str, ...], Meta(min_length=1, description="a string, or a list of one or more")]


Degrees = Annotated[float, Meta(ge=1, le=200)]


Entry = Annotated[
    str,
    Meta(
        pattern=r"^([^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*|[^:]+\.py)$",
        description='"module:attribute", or a script such as "train.py"',
    ),
]


ParamName = Annotated[
    str,
    Meta(
        pattern=rf"^(?!(?:{'|'.join(keyword.kwlist)})$)[^\W\d]\w*$",
        description="a name that Python takes for an argument, such as learning_rate",
    ),
]


_ParamScalar = (
    Annotated[str, Meta(max_length=2000)]
    | bool
    | Annotated[int, Meta(ge=-(2**62), le=2**62)]
    | Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
)


ParamValue = Annotated[
    _ParamScalar | Annotated[tuple[_ParamScalar, ...], Meta(max_length=1000)],
    Meta(description="a string, a finite number, true or false, or a list of these"),
]


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """The schedule of checkpoints, and how many are kept."""

    save_model_secs: Seconds | Literal["auto"] = key(
        600.0,
        "s",
        'Seconds between checkpoints. "auto": as few as `max_overhead` and `disk_writes_per_day` allow, 60 at least. '
        "0: none on a clock.",
    )
    max_overhead: Share = key(0.01, "", 'With "auto", the share of the time that saving may cost.')
    disk_writes_per_day: Annotated[float, Meta(ge=0.001, le=1e6)] = key(
        100.0,
        "GB",
        'With "auto", how much checkpoints may write to the disk in a day of training, to spare an SSD. At least one '
        "checkpoint an hour is written regardless.",
    )
    memory_overhead: ShareOrNone = key(
        0.01,
        "",
        "The share of training time that saves to memory between checkpoints may cost. If the process is killed, the "
        "next start resumes from memory. 0: nothing is saved to memory.",
    )
    save_model_steps: Count = key(0, "steps", "Steps between checkpoints. 0: none by steps.")
    keep_last: Positive = key(5, "checkpoints", "How many of the newest checkpoints are kept.")
    keep_every_hours: Hours = key(
        0.0, "h", "Besides those, one of every so many hours of training is kept permanently. 0: none."
    )
    keep_hourly: Count = key(
        0, "checkpoints", "The newest checkpoint of each of the last so many hours of training is kept. 0: none."
    )
    keep_daily: Count = key(
        0, "checkpoints", "The newest checkpoint of each of the last so many days of training is kept. 0: none."
    )
    max_disk_share: Share = key(
        1.0,
        "",
        "The share of the disk that the checkpoints may take. If they would take more, `keep_hourly` and `keep_daily` "
        "keep fewer: the oldest are deleted first.",
    )
    best: str | None = key(None, "", 'Which checkpoint is the best, such as "max val_accuracy" or "min loss".')
    keep_best: Positive = key(1, "checkpoints", "How many of the best are kept, if `best` is set.")
    snapshot: Literal["auto", "share", "copy"] = key(
        "auto",
        "",
        "Where the state is kept until its checkpoint is written. `share`: in the memory of the variables; a step that "
        "writes to a variable takes other memory for it. `copy`: in the machine's own memory, where it is copied to at "
        "the step. `auto`: `share` on a CPU, and on a GPU if that is known to have room; otherwise `copy`.",
    )
    minima: bool = key(True, "", "Whether the state at each minimum of the smoothed loss is kept.")
    keep_minima: Positive = key(3, "checkpoints", "How many of the lowest minima are kept.")
    minima_overhead: Share = key(0.01, "", "The share of the time that the search for minima may cost.")
    minima_smoothing_steps: Annotated[int, Meta(ge=1, le=10**6)] = key(
        100, "steps", "The time constant of the exponential smoothing of the loss."
    )
    minima_prominence: Share = key(
        0.1, "", "How far the smoothed loss must rise above a minimum, as a share of the loss there."
    )


@dataclass(frozen=True, kw_only=True)
class SummaryConfig:
    """The data that is written for TensorBoard, and its schedule."""

    save_summaries_secs: Seconds = key(
        120.0, "s", "Seconds between summaries: histograms of the weights, kernels, the job's own. 0: none."
    )
    metrics_secs: Seconds = key(
        10.0, "s", "Seconds between points of the metrics' curves (loss, accuracy, …). 0: none on a clock."
    )
    metrics_steps: Count = key(
        0, "steps", "Steps between points of those curves; the loop need not stop for them. 0: none by steps."
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """The schedule of the job's `evaluate`."""

    evaluate_secs: Seconds = key(600.0, "s", "Seconds between evaluations. 0: none on a clock.")
    evaluate_steps: Count = key(0, "steps", "Steps between evaluations. 0: none by steps.")


Action = Literal["stop", "rollback", "skip"]


@dataclass(frozen=True, kw_only=True)
class TroubleConfig:
    """The actions taken when the loss is NaN or infinite, or jumps."""

    on_nan: Action = key(
        "stop",
        "",
        "If the loss is NaN or infinite: `stop`; `rollback` to the last checkpoint and lower the learning rates; or go "
        "back and `skip` the batches.",
    )
    on_spike: Literal["ignore", "stop", "rollback", "skip"] = key("ignore", "", "The same if the loss jumps.")
    spike_deviations: Annotated[float, Meta(ge=1, le=1e6)] = key(
        20.0, "", "A loss this many standard deviations above the smoothed loss is a spike."
    )
    attempts: Positive = key(3, "", "How often the run goes back to the same checkpoint before it stops.")
    learning_rate_factor: Share = key(0.5, "", "What the learning rates are multiplied by at each rollback.")


@dataclass(frozen=True, kw_only=True)
class WatchdogConfig:
    """The time that anything but a step may take before systemd may end the process.

    Steps themselves have `WatchdogSec=` of the unit.
    """

    first_step_secs: Seconds = key(
        1800.0,
        "s",
        "From the start until the first step is done: import, restore, compilation; also between two sessions of a "
        "program. 0: no deadline.",
    )
    evaluate_secs: Seconds = key(3600.0, "s", "One evaluation, or one writing of summaries. 0: no deadline.")
    save_secs: Seconds = key(300.0, "s", "A save that writes no byte. 0: no deadline.")
    pause_secs: Seconds = key(
        60.0,
        "s",
        "How long a pause waits for a step that calls Python, such as one that waits for worker processes, for a "
        "program that does not end its loop and runs no step, and for a script outside of its calls of `fit`. After "
        "that the newest whole state is saved, and the process ends. 0: without a limit.",
    )


@dataclass(frozen=True, kw_only=True)
class CopyConfig:
    """The copy of the run elsewhere, which `trainerd copy` keeps."""

    to: str | None = key(
        None,
        "",
        "The URL of a folder for this run: `s3://`, `gs://`, `az://`, `file://`, `sftp://`, `webdav://`, `webdavs://` "
        "or `rclone://`. It may hold no credentials. Default: no copy.",
    )
    max_mbit: Annotated[float, Meta(ge=0, le=1e6)] = key(0.0, "Mbit/s", "The upload limit. 0: no limit.")
    keep_last: Positive = key(5, "checkpoints", "How many of the newest checkpoints the copy keeps.")
    keep_every_hours: Hours = key(
        0.0, "h", "Besides those, the copy keeps one of every so many hours of training permanently. 0: none."
    )


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The workers that train one model together."""

    workers: tuple[str, ...] | Literal["slurm", "tf_config"] = key(
        (),
        "",
        'The `"host:port"` of each worker, by rank. `"slurm"`: the tasks of the Slurm step. `"tf_config"`: the '
        "workers in `TF_CONFIG`. Empty: this process trains alone.",
    )
    port: Annotated[int, Meta(ge=1024, le=65000)] = key(
        29500, "", 'With `"slurm"`, the chief\'s port. Worker r has the port r + 1 above it.'
    )
    token: Annotated[str, Meta(min_length=1)] = key(
        "cluster.token", "", "The file of the secret that all workers share, relative to the config's folder."
    )
    heartbeat_secs: Annotated[float, Meta(ge=1, le=3600)] = key(
        20.0, "s", "A worker that has sent nothing for so long counts as lost."
    )
    step_secs: Annotated[float, Meta(ge=1, le=86400)] = key(
        300.0, "s", "How long workers wait for each other within a step."
    )


@dataclass(frozen=True, kw_only=True)
class ScriptConfig:
    """The script that `entry` names."""

    arguments: tuple[str, ...] = key((), "", "The arguments of the script, as in `sys.argv[1:]`.")
    adopt: bool = key(
        False, "", "Replace the script's `model.fit` by `trainerd.keras.fit`, with the run directory of this config."
    )


@dataclass(frozen=True, kw_only=True)
class WhenConfig:
    """The conditions under which the agent trains the run. All of them must be met."""

    hours: TextOrTexts | None = key(
        None,
        "",
        'The hours in local time, such as "20:00-08:00", or a list of such spans. A span that ends after midnight '
        "belongs to the day on which it begins. Default: the whole day.",
    )
    days: TextOrTexts | None = key(
        None, "", 'The days on which a span begins, such as "mon-fri" or "sat,sun", or a list. Default: every day.'
    )
    on_battery: bool = key(True, "", "Whether the run trains while the machine is on battery.")
    idle_mins: Annotated[float, Meta(ge=0, le=1e5)] = key(
        0.0, "min", "How long nobody must have used a keyboard or terminal of the machine. 0: people do not matter."
    )
    max_load: Annotated[float, Meta(ge=0.1, le=1e5)] | None = key(
        None,
        "cores",
        "How many processor cores other programs may keep busy, on average over a minute. The processes of the "
        "agent's runs do not count. Default: any number.",
    )
    free_gpu: bool = key(
        False, "", "Whether the GPUs that the run gets must be free of compute processes that are not the agent's runs."
    )
    max_temp: Degrees | None = key(
        None, "°C", "The temperature of the processor or a GPU above which the run pauses. Default: any temperature."
    )
    resume_temp: Degrees | None = key(
        None, "°C", "The temperature below which it then resumes. Default: 10 below `max_temp`."
    )

    def parsed_hours(self) -> TrainingHours | None:
        """Return the hours; None if they do not matter."""
        return None if self.hours is None and self.days is None else TrainingHours.parse(self.hours, self.days)


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """The records that are logged."""

    level: Literal["debug", "info", "warning", "error"] = key("info", "", "The least level that is logged.")
    progress_secs: Seconds = key(60.0, "s", "Seconds between lines of progress. 0: none.")


@dataclass(frozen=True, kw_only=True)
class Config:
    """The content of one trainerd.toml. Paths are absolute."""

    entry: Entry = key(
        MISSING,
        "",
        "The job: `module:attribute`, or a script, such as `train.py`. The config's folder is on the import path.",
    )
    logdir: Annotated[str, Meta(min_length=1)] = key(
        MISSING, "", "The run directory, relative to the config's folder. All of a run is in it."
    )
    job_folder: Annotated[str, Meta(min_length=1)] | None = key(
        None,
        "",
        "The folder of the job, relative to the config's. Its module is imported from there, and relative paths of the "
        "config start there. Default: the config's own folder.",
    )
    name: str | None = key(
        None, "", "What the run is called in lists, on the dashboard and in commands. Default: the name of its folder."
    )
    tags: tuple[str, ...] = key((), "", "Words by which runs are found in `trainerd list` and on the dashboard.")
    notes: Annotated[str, Meta(max_length=2000)] | None = key(
        None, "", "Text for people, shown by `trainerd status` and on the dashboard."
    )
    schedule: str | None = key(
        None, "", "The method of an Experiment that is run. Default: that of the task in TF_CONFIG."
    )
    max_steps: Positive | None = key(None, "steps", "The last step of the run. Default: train forever.")
    target: str | None = key(None, "", 'Ends training when a metric reaches a value, such as "val_accuracy >= 0.97".')
    stop_on_nan: bool = key(
        True, "", "Stop when the loss is NaN or infinite, and never save variables that hold a NaN."
    )
    deterministic: bool = key(
        False, "", "Have every op give the same bits each time, so that runs repeat exactly. Slower; needs `seed`."
    )
    seed: Annotated[int, Meta(ge=0, lt=2**32)] | None = key(
        None, "", "Seeds Python, NumPy, TensorFlow and Keras before the job is built. Default: each new run differs."
    )
    devices: Devices | None = key(
        None,
        "",
        'The devices that train together, each with its part of every batch: `"all"`, how many, or their names, such '
        'as `["GPU:0", "GPU:2"]`. Default: one.',
    )
    input_position: Literal["exact", "restart"] = key(
        "exact", "", "`exact`: the dataset's position is saved. `restart`: each start begins at its first element."
    )
    params: Mapping[ParamName, ParamValue] = key(
        dict,
        "",
        "A table of parameters of the job: arguments of its function, or what `trainerd.params()` returns in a script.",
    )
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    summary: SummaryConfig = field(default_factory=SummaryConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    trouble: TroubleConfig = field(default_factory=TroubleConfig)
    watchdog: WatchdogConfig = field(default_factory=WatchdogConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    script: ScriptConfig = field(default_factory=ScriptConfig)
    copy: CopyConfig = field(default_factory=CopyConfig)
    when: WhenConfig = field(default_factory=WhenConfig)
    log: LogConfig = field(default_factory=LogConfig)
    path: Path | None = None
    folder: Path = field(default_factory=Path.cwd)
    accept_changes: bool = False
    accept_job: bool = False
    rank: int = 0
    addresses: tuple[str, ...] = ()
    options: StartOptions = PLAIN

    @property
    def is_of_several(self) -> bool:
        """True if several workers train the run."""
        return len(self.addresses) > 1

    @property
    def rundir(self) -> Path:
        """The run directory of this process, absolute. A worker that is not the chief has its own below the run's."""
        run = rundir_of(self.folder, self.logdir)
        return run / WORKERS / str(self.rank) if self.rank else run

    @property
    def script_path(self) -> Path:
        """The script that `entry` names. Without a config it may be in another folder than the current one."""
        beside = self.path.parent if self.path is not None and is_script(self.path) else self.folder
        return beside / self.entry

    def description(self) -> dict[str, Any]:
        """Return the keys that tell a person what the run is, as fields of the run's state."""
        return {
            "name": self.name or "",
            "tags": list(self.tags),
            "notes": self.notes or "",
            "params": dict(self.params),
        }

    def parsed_best(self) -> Best | None:
        """Return the goal by which the best checkpoint is chosen; None if the config names none."""
        return None if self.checkpoint.best is None else Best.parse(self.checkpoint.best)

    def parsed_target(self) -> MetricTarget | None:
        """Return the target; None if there is none."""
        return None if self.target is None else MetricTarget.parse(self.target)


PLACE = ("logdir", "job_folder")  # keys that say where things are
DESCRIPTION = ("name", "tags", "notes")  # keys that change nothing of the training
NOT_TRAINED = ("copy.", "when.")  # tables that change nothing of it
NOT_KEYS = {"path", "folder", "accept_changes", "accept_job", "rank", "addresses", "options"}  # not of the file


def folder_of(path: Path, job_folder: object) -> Path:
    """Return the folder from which the relative paths of a config start.

    Args:
      path: the config.
      job_folder: its key of this name; anything but a string counts as missing.

    Raises:
      ConfigError: it begins with the home directory of a user who has none.
    """
    if not isinstance(job_folder, str):
        return path.parent
    try:
        return absolute(path.parent / Path(job_folder).expanduser())
    except RuntimeError:
        raise ConfigError(
            f"{path}: job_folder: {job_folder!r} begins with the home directory of a user who has none here"
        ) from None


def rundir_of(folder: Path, logdir: str) -> Path:
    return absolute(folder / Path(logdir).expanduser())


def every_key() -> list[tuple[str, Any, Any]]:
    """Return every key, in the order of the file, as (its name with its table, its type, its dataclass field)."""
    return keys_of(Config, NOT_KEYS)
