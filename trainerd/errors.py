"""The error tree: each class owns an exit code, and each message says what was wrong, where, and what to do.

The codes are those of sysexits.h, so that a shell or a systemd unit can distinguish them.
"""

from __future__ import annotations

from typing import Any

_HIGHEST_CODE = 255
INTERRUPTED = 130  # the exit code of a process that a KeyboardInterrupt ends; a shell has the same for SIGINT


class TrainerdError(Exception):
    """The base of every error that trainerd raises on purpose. It is shown without a traceback.

    An error that says that what was given is wrong (arguments, settings, checkpoints) is a ValueError too: TensorFlow
    and Keras raise one there, and programs catch it.

    Attributes:
      exit_code: what the process exits with; each class owns its own.
      cause: the job's own error that led to it, in a line; empty if none did.
      phase: what the run was doing; empty if that is not known.
      was_shown: whether the person has seen it already, in the log that goes to the terminal.
    """

    exit_code = 70
    was_shown = False
    cause = ""
    phase = ""
    summary = "an error of trainerd's own"

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickle and copy. `__init__` is not called again, since subclasses have other arguments."""
        return _without_init, (type(self), self.args), vars(self)


def _without_init(cls: type[TrainerdError], args: tuple[object, ...]) -> TrainerdError:
    return cls.__new__(cls, *args)


class UsageError(TrainerdError, ValueError):
    """The command line asks for something that does not exist or does not go together."""

    exit_code = 64
    summary = "the command line is wrong"


class DataError(TrainerdError, ValueError):
    """Checkpoints exist and none can be used."""

    exit_code = 65
    summary = "checkpoints exist, and none of them can be used"


class EntryError(TrainerdError):
    """The job cannot be had: its entry does not import, raises, or gives something that is not a job."""

    exit_code = 69
    summary = "the job could not be loaded"


class BackendError(EntryError, SystemExit):
    """Keras runs on another backend than TensorFlow.

    No line of the program is at fault, so one that does not catch this ends with the message, and without a traceback.
    """

    summary = "Keras runs on another backend than TensorFlow"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message


class NotRunningError(TrainerdError):
    """A command needs a running trainer and there is none."""

    exit_code = 69
    summary = "no trainer runs in the run directory"


class JobError(TrainerdError):
    """The job failed while it trained.

    Attributes:
      step: the last step that was completed.
      sound: whether the state is that of a boundary, so that it may be saved.
      details: the job's own traceback, or an empty string.
      failed_at: the step that failed; the last one that was completed if something after it failed.
    """

    exit_code = 70
    summary = "the job failed while it trained"

    def __init__(
        self, message: str, *, step: int, sound: bool, details: str = "", failed_at: int | None = None
    ) -> None:
        super().__init__(message)
        self.step = step
        self.failed_at = step if failed_at is None else failed_at
        self.sound = sound
        self.details = details


class RepeatedFailureError(TrainerdError):
    """The job has failed at the same step again and again, and has made no checkpoint in between."""

    exit_code = 65
    summary = "the job failed at the same step again and again, with no checkpoint in between"


class ProofError(TrainerdError):
    """`trainerd prove` found that an interrupted run differs from an uninterrupted one, or could not compare them."""

    exit_code = 70
    summary = "`trainerd prove` found that interruptions change the result"


class ReleaseError(TrainerdError):
    """`trainerd export` could not make a release that gives what the checkpoint gives."""

    exit_code = 70
    summary = "the outputs of an exported model differ from those of its checkpoint"


class DiagnosisError(TrainerdError):
    """`trainerd doctor` found a problem. As with `prove`, what it says of the run is the command's result."""

    exit_code = 70
    summary = "`trainerd doctor` found a problem"


class StorageError(TrainerdError):
    """The run directory cannot be read or written.

    Attributes:
      is_unfinished: whether it has left something half done, which the next start finishes.
    """

    exit_code = 74
    summary = "the run directory could not be read or written"

    def __init__(self, *said: object, is_unfinished: bool = False) -> None:
        super().__init__(*said)
        self.is_unfinished = is_unfinished


class CopyError(TrainerdError):
    """The destination of a run's copies cannot be reached, read or written."""

    exit_code = 74
    summary = "the destination of a copy could not be read or written"


class InUseError(TrainerdError):
    """Another process trains in this run directory."""

    exit_code = 75
    summary = "another process trains in the run directory"


class PeerLostError(TrainerdError):
    """Another worker of the cluster is gone. Nothing of the step under way is saved."""

    exit_code = 76
    summary = "another worker of the cluster is gone: start this one again"


class PeerFailedError(TrainerdError):
    """Another worker of the cluster has failed; the code is the one that it exits with itself.

    Args:
      message: what it says.
      code: what it exits with, which is none for success.
    """

    summary = "another worker of the cluster failed; each exits with the code of that one"

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code if 0 < code <= _HIGHEST_CODE else TrainerdError.exit_code


class ConfigError(TrainerdError, ValueError):
    """An error for a wrong trainerd.toml. It holds every mistake that was found, not only the first."""

    exit_code = 78
    summary = "the configuration is wrong"


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a process that this error ends."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, TrainerdError):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1 if error.code else 0
    return TrainerdError.exit_code


def full_message(error: TrainerdError) -> str:
    """Return an error for a person: its message, and the job's own traceback if it has one."""
    details = error.details if isinstance(error, JobError) else ""
    lines = [headline(error), *str(error).splitlines()[1:], *([details] if details else [])]
    return "\n".join(lines)


def headline(error: BaseException) -> str:
    """Return an error in one line: its message's first, and the job's own error that led to it."""
    first = str(error).partition("\n")[0] or type(error).__name__
    cause = error.cause if isinstance(error, TrainerdError) else ""
    return f"{first.rstrip(':')}: {cause}" if cause else first


def every_class() -> list[type[TrainerdError]]:
    """Return all error classes, the base first, in the order of their definition."""
    found: list[type[TrainerdError]] = [TrainerdError]
    for cls in found:
        found.extend(cls.__subclasses__())
    return found
