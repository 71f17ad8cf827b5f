"""Calls the user's code, and reports its errors without the frames of trainerd and TensorFlow."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from trainerd.errors import JobError, TrainerdError
from trainerd.system.fork import ended_in_children
from trainerd.text import without_colours

_OURS = str(Path(__file__).resolve().parent.parent)
_EXAMPLES = str(Path(_OURS, "examples"))
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib", "scripts")})
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<where>.+)$')

_SAYS_WHERE = re.compile(
    r'Graph execution error:$|Detected at node |File "|Traceback |<stack traces unavailable>'
    r"|(\w+: )?Exception encountered when calling (layer .*|\S+\.call\(\)\.$)"
)
# The frames that come before the message of an error in a traced function.
_FRAMES_OF_TRACE = re.compile(r"in user code:\n\n.*?\n\n", re.DOTALL)
_NAMES_ERROR = re.compile(r"\w+(Error|Exception|Interrupt|Exit|Iteration): ")
_LINE = 300  # characters
_HALF_WRITTEN = re.compile(
    r"(?:Existing cache files found:\s*\n|cache lockfile already exists \(')"
    r"(?P<file>.+)_(?P<number>\d+)\.(?:index|lockfile)"
)

FAILURES = (Exception, SystemExit)  # sys.exit() in a job must not decide what the daemon exits with


@contextlib.contextmanager
def user_code(failed: Callable[[BaseException], TrainerdError]) -> Iterator[None]:
    """Run the user's code in the block. Its errors are reported as the user's.

    Args:
      failed: returns the error that is raised instead, which may be the same.
    """
    try:
        with ended_in_children():
            yield
    except BaseException as error:
        if not is_users(error):
            raise
        if (translated := failed(error)) is error:
            raise
        raise translated from error


def called_at_boundary(
    what: str, step: int, found_in: Callable[[BaseException], str] = lambda error: ""
) -> contextlib.AbstractContextManager[None]:
    """Run a function of the user's between two steps, in the block.

    Args:
      what: for the message, such as "the job's evaluate".
      step: the global step.
      found_in: names the part that raised an error, in place of `what`; "" if it is none of those that it knows.

    Raises:
      JobError: it failed. The state is that of the boundary.
    """

    def failed(error: BaseException) -> JobError:
        details = job_traceback(error)
        return JobError(f"{found_in(error) or what} failed after step {step}", step=step, sound=True, details=details)

    return user_code(failed)


def is_users(error: BaseException) -> bool:
    """Return whether the user's code has raised an error itself.

    It has raised a KeyboardInterrupt itself, unless Python raises it for a Ctrl-C, which it does not while trainerd
    handles SIGINT.
    """
    if isinstance(error, KeyboardInterrupt):
        return signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    return isinstance(error, FAILURES)


def is_users_file(file: str) -> bool:
    """Return whether a source file is the user's: not trainerd's, a library's, or made by TensorFlow."""
    if file.startswith(_EXAMPLES):
        return True
    if Path(file).name.startswith("__autograph_generated_file"):  # in the folder for temporary files
        return False
    return not file.startswith((_OURS, *_LIBRARIES, "<frozen"))


def job_traceback(error: BaseException) -> str:
    """Return an exception's type, message and cause, with the frames of the user's own files only."""
    parts: list[str] = []
    for one in _chain(error):
        frames = [f for f in traceback.extract_tb(one.__traceback__) if is_users_file(f.filename)]
        text = "Traceback (most recent call last):\n" + "".join(traceback.format_list(frames)) if frames else ""
        if isinstance(one, SyntaxError):
            parts.append(text + "".join(traceback.format_exception_only(one)))
        else:
            notes = map(without_colours, getattr(one, "__notes__", ()))
            said = [own_message(str(one)), half_written_cache(str(one)), *notes]
            parts.append(f"{text}{type(one).__name__}: " + "\n".join(filter(None, said)) + "\n")
    return "\nwhich led to:\n\n".join(parts).rstrip("\n")


def end_of(error: SystemExit) -> str:
    """Return how the user's code has ended the process itself: with which exit code or message, and where."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if is_users_file(each.filename)]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    code = 0 if error.code is None else error.code
    return (f"with exit code {code}" if isinstance(code, int) else f"with the message {str(code)!r}") + where


def _chain(error: BaseException) -> list[BaseException]:
    """Return the exception and what caused it, the first cause first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return chain[::-1]


def in_a_line(error: BaseException) -> str:
    """Return an exception's type and the first line of its message that says what is wrong, not where."""
    if said := half_written_cache(str(error)):
        return said
    message = own_message(_FRAMES_OF_TRACE.sub("", str(error), count=1))
    lines = (re.sub(r"^\{\{.*?\}\}\s*", "", line).strip() for line in message.splitlines())
    text = next((line for line in lines if line and not _SAYS_WHERE.match(line)), "")
    text = text.removeprefix(f"{type(error).__name__}:").lstrip()  # TensorFlow puts the type before a traced one's
    if _NAMES_ERROR.match(text):  # of Python that an op has called
        return text[:_LINE]
    return f"{type(error).__name__}: {text}"[:_LINE] if text else type(error).__name__


def half_written_cache(message: str) -> str:
    """Return advice if TensorFlow refuses a half-written cache, with its files' full paths; else an empty string.

    A cache is written in parts, FILE_0, FILE_1 and so on: a new one at each save of the position. A start may need
    those before the one that TensorFlow names, and none after it.
    """
    if (found := _HALF_WRITTEN.search(message)) is None:
        return ""
    file, number = Path(found["file"]).absolute(), int(found["number"])
    parts = [re.fullmatch(re.escape(file.name) + r"_(\d+)\..*", each.name) for each in file.parent.glob("*")]
    numbers = {number, *(int(part[1]) for part in parts if part is not None and int(part[1]) >= number)}
    command = " ".join(f"{shlex.quote(f'{file}_{each}')}.*" for each in sorted(numbers))
    return (
        f"the dataset's cache {file} is half written: another process writes it, or one ended before its first pass "
        f"over the dataset was complete. If no process writes it, type `rm {command}` and start again"
    )


def own_message(message: str) -> str:
    """Return TensorFlow's message of a failed op, with its stack frames in the user's files only, and no colours.

    The message of an op that ran in a graph lists where the op was made, a frame a line, most of them TensorFlow's.
    """
    kept: list[str] = []
    drop_source = False
    for line in without_colours(message).splitlines():
        frame = _FRAME.match(line)
        if frame:
            drop_source = not is_users_file(frame["file"])
            if not drop_source:
                kept.append(line)
        elif drop_source and line.startswith("    ") and line.strip():
            continue
        else:
            drop_source = False  # a blank line ends the frames: what comes after it is the message
            if not re.match(r"^\s*\[\[\{\{node|^\s*\[\[.*\]\]|.*\[Op:__inference|^\s*$", line):
                kept.append(line)
    return "\n".join(kept)
