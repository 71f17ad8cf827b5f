"""The page of every message: the errors by class and exit code, and the warnings of the log."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path, PurePosixPath

from tools.site.pages import DOCS, ROOT, title_of
from tools.site.source_texts import VARIES, classes, messages
from trainerd.errors import TrainerdError, every_class

PLACE = PurePosixPath("reference/messages.md")
# Each class of errors: the title of its section, and the fix for all of its messages.
SECTIONS = {
    "UsageError": (
        "Command line errors",
        "Change the command line: see [the page of the command](commands/index.md).",
    ),
    "DataError": (
        "Checkpoint errors",
        "Nothing was changed. Put back what the message names, or use another run directory: `--logdir`.",
    ),
    "RepeatedFailureError": (
        "Repeated failures",
        "Fix the job or its data, and start again.",
    ),
    "EntryError": ("Job errors", "Fix the job or its `entry`, and try it: [`trainerd check`](commands/check.md)."),
    "BackendError": (
        "Another Keras backend",
        "Set `KERAS_BACKEND=tensorflow` where the program starts. Under systemd, set it in the unit.",
    ),
    "NotRunningError": (
        "Nothing runs",
        "Start the run: [`trainerd start`](commands/start.md). [`trainerd list`](commands/list.md) shows your runs.",
    ),
    "JobError": (
        "Training errors",
        "The job's traceback is below the message. Fix the job and start it: it resumes from the newest saved state.",
    ),
    "ProofError": (
        "Failed proofs",
        "Add what is missing to [the job's state](../jobs.md). See [`trainerd prove`](commands/prove.md).",
    ),
    "ReleaseError": ("Failed exports", "Nothing was written. See [Releasing a model](../release.md)."),
    "DiagnosisError": ("Problems found by doctor", "Each finding has its fix. See [`trainerd doctor`](../doctor.md)."),
    "TrainerdError": ("Internal errors", "Keep the log, and report the error with its traceback."),
    "StorageError": (
        "Disk and file errors",
        "The message names the reason. Permission denied: compare `id` with `ls -ld` of the directory. No space left: "
        "`df -h` and `df -i`. An error of the device: `dmesg`. Every checkpoint that was announced is complete.",
    ),
    "CopyError": (
        "Copy errors",
        "The message has what the destination or rclone said. `trainerd copy` tries again by itself, except with "
        "`--once`. See [Credentials](../guides/copies.md#credentials).",
    ),
    "InUseError": (
        "Run directory in use",
        "Pause the other process, [`trainerd pause --wait`](commands/pause.md), or use another `--logdir`.",
    ),
    "PeerLostError": (
        "Lost workers",
        "Start this worker again. [`trainerd start --keep-alive`](commands/start.md) and systemd do that.",
    ),
    "PeerFailedError": ("Failed workers", "Read that worker's own log."),
    "ConfigError": ("Configuration errors", "Change the key that the message names: [all keys](../config.md)."),
}
# The folders of the package: what their messages are about, and the page that explains it.
TOPICS = {
    "agent": ("The queue and its agent", "guides/several-runs.md"),
    "agent/when": ("When a run may train", "guides/train-at-night.md"),
    "checkpoints": ("Checkpoints", "history.md"),
    "checkpoints/contents": ("What is saved", "jobs.md"),
    "cli": ("Commands", "config.md"),
    "cli/commands/history": ("Checkpoints and history", "history.md"),
    "cli/commands/jobs": ("Jobs and releases", "release.md"),
    "cli/commands/queue": ("The queue and its agent", "guides/several-runs.md"),
    "cli/commands/runs": ("List and watcher", "watch.md"),
    "config": ("The config", "config.md"),
    "copies": ("Copies", "guides/copies.md"),
    "cli/commands/copies": ("Copies", "guides/copies.md"),
    "daemon": ("The daemon", "systemd.md"),
    "doctor": ("Upgrades", "doctor.md"),
    "events": ("TensorBoard", "tensorboard.md"),
    "history": ("Checkpoints and history", "history.md"),
    "job": ("The job and its entry", "jobs.md"),
    "loop": ("The training loop", "jobs.md"),
    "open_job": ("The job and its entry", "jobs.md"),
    "programs/estimator": ("Estimators", "experiment.md"),
    "programs/keras": ("Keras models", "keras.md"),
    "programs/supervisor": ("Supervisor", "supervisor.md"),
    "proof": ("Check and prove", "jobs.md"),
    "release": ("Export and predict", "release.md"),
    "run": ("Resuming a run", "jobs.md"),
    "rundir": ("The run directory", "reliability.md"),
    "script": ("Scripts", "keras.md"),
    "sessions/input": ("Datasets", "jobs.md"),
    "sessions/keras": ("Keras models", "keras.md"),
    "sessions/tf1": ("TensorFlow 1 graphs", "jobs.md"),
    "sessions/tf2": ("TensorFlow 2 jobs", "jobs.md"),
    "sweeps": ("Sweeps", "guides/sweeps.md"),
    "cli/commands/sweeps": ("Sweeps", "guides/sweeps.md"),
    "system": ("Files with secrets", "watch.md"),
    "system/resources": ("Saving to memory", "reliability.md"),
    "watch": ("Watcher", "watch.md"),
    "workers": ("Several workers", "many-machines.md"),
}
_LOGGED = {
    "error": ("Errors in the log", "They do not end the run."),
    "warning": (
        "Warnings",
        "They are in the log. `trainerd status` shows those that matter for the run.",
    ),
}
_INTRODUCTION = f"""# Messages

All errors and warnings, grouped by exception class and exit code. `{VARIES}` marks the part that varies. The fix that
applies to a whole class is given above its messages. Exit code 0 means success.

| exit code | what went wrong |
|---|---|
"""


@functools.cache
def all_messages() -> list[tuple[str, Path, str]]:
    """Return every message: its class of errors, or its level in the log; its file; its text."""
    files = sorted((ROOT / "trainerd").rglob("*.py"))
    kinds = _kinds(files)
    return [
        (kind, path, message.text)
        for path in files
        for message in messages(path)
        if (kind := kinds.get(message.by, message.by)) in (*SECTIONS, *_LOGGED)
    ]


def pages() -> dict[PurePosixPath, str]:
    """Return the page of messages."""
    said = [(kind, _topic(path), text) for kind, path, text in all_messages()]
    errors = sorted((c for c in every_class() if c.__module__ == "trainerd.errors"), key=lambda cls: cls.exit_code)
    parts, anchors = [_INTRODUCTION + "\n".join(map(_row, errors)), ""], _Anchors()
    for cls in errors:
        name, (title, fix) = cls.__name__, SECTIONS[cls.__name__]
        parts += [f"## {title} (exit code {_code(cls)}) {{#{name}}}\n", f"`trainerd.errors.{name}`: {cls.summary}.\n"]
        parts += [f"**Fix:** {fix}\n", *_listed([(topic, text) for kind, topic, text in said if kind == name], anchors)]
    for by, (title, introduction) in _LOGGED.items():
        parts += [f"## {title}\n", f"{introduction}\n"]
        parts += _listed([(topic, text) for kind, topic, text in said if kind == by], anchors)
    return {PLACE: "\n".join(parts)}


def _topic(path: Path) -> tuple[str, str]:
    """Return what the messages of a file are about: a title, and the page that explains it.

    Raises:
      SystemExit: the table of topics lacks it.
    """
    module = path.relative_to(ROOT / "trainerd").with_suffix("")
    for each in (module, *module.parents):
        if str(each) in TOPICS:
            return TOPICS[str(each)]
    raise SystemExit(f"tools/site/messages.py: TOPICS lacks trainerd/{module.parent}")


def _code(cls: type[TrainerdError]) -> str:
    return "that of the worker" if cls.__name__ == "PeerFailedError" else str(cls.exit_code)


def _row(cls: type[TrainerdError]) -> str:
    name = cls.__name__
    return f"| {_code(cls)} | [{SECTIONS[name][0]}](#{name}), `{name}`: {cls.summary} |"


class _Anchors:
    """Anchors for messages, each of them once."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def add(self, text: str) -> str:
        """Return an anchor for a message."""
        words = "-".join(re.findall(r"[a-z0-9]+", text.lower())[:8])
        found = next(each for n in range(1, 1000) if (each := words if n == 1 else f"{words}-{n}") not in self._used)
        self._used.add(found)
        return found


def _listed(said: Iterable[tuple[tuple[str, str], str]], anchors: _Anchors) -> list[str]:
    """Return the messages of a section by topic, each with what to do if it says so. What only stands for another text
    is left out."""
    topics: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for topic, text in said:
        plain = re.sub(rf"{VARIES}(?:\s*{VARIES})*", VARIES, " ".join(text.split()))
        if len(re.findall(r"\w{2,}", plain)) > 1:
            what, fix = _split(plain)
            topics.setdefault(topic, {}).setdefault(what, {})[fix] = None
    parts = []
    for topic in sorted(topics):
        title, guide = topic
        parts.append(f"### {title}\n\nSee [{title_of(DOCS / guide)}](../{guide}).\n")
        for what, fixes in topics[topic].items():
            parts.append(f"#### `` {what} `` {{#{anchors.add(what)}}}\n")
            parts += [f"- {fix}" for fix in fixes if fix]
            parts.append("")
    return parts


def _split(text: str) -> tuple[str, str]:
    """Return what went wrong, which is the first sentence of a message, and the rest: what to do."""
    what, fix = re.fullmatch(r"(.+?)(?:\. ([A-Z`-].*))?", text).groups()  # type: ignore[union-attr]  # matches any text
    is_sentence = fix is not None and len(re.findall(r"\w{2,}", fix)) > 1
    return what.removesuffix(f". {VARIES}").rstrip("."), _as_markdown(fix) if is_sentence else ""


def _as_markdown(text: str) -> str:
    """Return a text of a terminal as Markdown: what is not in backticks means itself."""
    parts = text.split("`")
    plain = [re.sub(r"([\\*_<>\[\]#|])", r"\\\1", part) for part in parts[::2]]
    code = [f"`{part}`" for part in parts[1::2]]
    return "".join(each for pair in zip_longest(plain, code, fillvalue="") for each in pair)


def _kinds(files: Iterable[Path]) -> dict[str, str]:
    """The class of trainerd/errors.py that each error class of the source is or derives from, by name."""
    bases = {name: of for path in files for name, of in classes(path)}

    def kind(name: str) -> str | None:
        if name in SECTIONS:
            return name
        return next((found for base in bases.get(name, ()) if base != name and (found := kind(base))), None)

    return {name: found for name in bases if (found := kind(name))}
