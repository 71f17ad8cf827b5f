"""The page of every message: the errors by their exit code, and the warnings of the log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tools.site.pages import ROOT
from tools.site.source_texts import VARIES, Said, classes, messages
from trainerd.errors import TrainerdError, every_class

PLACE = PurePosixPath("reference/messages.md")
_OPERATIONS = "../operations.md"
# What to do about an error of a class, where its message does not say more.
CURES = {
    "TrainerdError": "trainerd itself failed. Report it with the log, which has the traceback.",
    "UsageError": "Change the command line: `trainerd COMMAND --help` lists what a command takes.",
    "DataError": f"Nothing was touched. See [When things go wrong]({_OPERATIONS}#when-things-go-wrong).",
    "EntryError": "Run `trainerd check`, and fix the job or its `entry`. See [Writing a job](../jobs.md).",
    "NotRunningError": "Start the run: `trainerd start`. `trainerd list` shows what runs.",
    "JobError": "The traceback below the message is the job's own. Fix the job and start again: it resumes from the "
    "last checkpoint.",
    "RepeatedFailureError": "Check the step that fails, fix the job or its data, and start again.",
    "ProofError": f"Add what is missing to the job's state. See [trainerd prove]({_OPERATIONS}#trainerd-prove).",
    "ReleaseError": "Nothing was written. See [The package](../release.md#the-package).",
    "StorageError": "The message names the reason. Permission denied: compare `id` with `ls -ld` of the directory. No "
    "space left: `df -h` and `df -i`. An error of the device: `dmesg`. Every checkpoint that was reported as saved is "
    "complete.",
    "InUseError": "Pause the other process, `trainerd pause --wait`, or name another `--logdir`.",
    "PeerLostError": "Start this worker again; `trainerd start --keep-alive` and systemd do so by themselves.",
    "PeerFailedError": "Read the log of that worker.",
    "DiagnosisError": "Each finding comes with what to do. See [Diagnose a run](../doctor.md).",
    "ConfigError": "Correct what the message names. See [Configuration reference](../config.md).",
}


def pages() -> dict[PurePosixPath, str]:
    """The page of messages."""
    files = sorted((ROOT / "trainerd").rglob("*.py"))
    said = {message for path in files for message in messages(path)}
    kinds = _kinds(files)
    errors = sorted((c for c in every_class() if c.__module__ == "trainerd.errors"), key=lambda cls: cls.exit_code)
    parts = [_INTRODUCTION, "| exit code | error | what happened |", "|---|---|---|", *map(_row, errors), ""]
    for cls in errors:
        texts = {message.text for message in said if kinds.get(message.by) == cls.__name__}
        parts += [
            f"## {cls.__name__} {{#{cls.__name__}}}\n",
            f"{_happened(cls)} {CURES[cls.__name__]}\n",
            *_listed(texts),
        ]
    for by, title in (("error", "Errors of the log"), ("warning", "Warnings")):
        parts += [f"## {title}\n", f"{_LOGGED[by]}\n", *_listed(m.text for m in said if m == Said(by, m.text))]
    return {PLACE: "\n".join(parts)}


_INTRODUCTION = f"""# Messages

All errors and warnings, grouped by exception class and exit code. {VARIES} marks the part that varies. A message says
what went wrong, where, and what to do. The fix that applies to a whole class is given above its messages. Exit code 0
means success; [Operations]({_OPERATIONS}#exit-codes) has the other codes too.
"""
_LOGGED = {
    "error": "They do not end the run by themselves.",
    "warning": "They are in the log and, if the run continues in spite of something, in `trainerd status`.",
}


def _row(cls: type[TrainerdError]) -> str:
    code = "that worker's" if cls.__name__ == "PeerFailedError" else cls.exit_code
    return f"| {code} | [{cls.__name__}](#{cls.__name__}) | {cls.summary} |"


def _happened(cls: type[TrainerdError]) -> str:
    """What an error of a class is, as a sentence."""
    return f"**{cls.summary[0].upper()}{cls.summary[1:]}.**"


def _kinds(files: Iterable[Path]) -> dict[str, str]:
    """The class of trainerd/errors.py that each error class of the source is or derives from, by name."""
    bases = {name: of for path in files for name, of in classes(path)}

    def kind(name: str) -> str | None:
        if name in CURES:
            return name
        return next((found for base in bases.get(name, ()) if base != name and (found := kind(base))), None)

    return {name: found for name in bases if (found := kind(name))}


def _listed(texts: Iterable[str]) -> list[str]:
    """A list of messages. What is only a place for another text is none."""
    plain = {re.sub(rf"{VARIES}(?:\s*{VARIES})*", VARIES, " ".join(text.split())) for text in texts}
    shown = sorted((text for text in plain if len(re.findall(r"\w{2,}", text)) > 1), key=str.casefold)
    return [*(f"- `` {text} ``" for text in shown), ""]
