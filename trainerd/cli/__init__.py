"""The `trainerd` command. The only place where errors become exit codes. It never imports TensorFlow."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from typing import TextIO

import click

from trainerd.cli.app import cli
from trainerd.cli.say import say
from trainerd.cli.usage import message_of
from trainerd.errors import INTERRUPTED, StorageError, TrainerdError, UsageError, exit_code_of, full_message
from trainerd.system.exit import end_soon


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code, also if the trained job leaves something running."""
    try:
        _run(arguments)
    except SystemExit as ended:
        end_soon(exit_code_of(ended))
        raise


def _run(arguments: list[str] | None) -> None:
    _open_closed_streams()
    try:
        code = cli.main(arguments, prog_name="trainerd", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message(), err=True)
        sys.exit(UsageError.exit_code)
    except click.UsageError as error:
        say(f"trainerd: {message_of(error)}", err=True)
        sys.exit(UsageError.exit_code)
    except TrainerdError as error:
        if not error.was_shown:
            say(_for_stderr(f"trainerd: {full_message(error)}"), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe has gone, as with `trainerd logs | head`.
        _drop(sys.stdout)
        sys.exit(0)
    except OSError as error:
        if error.errno == errno.ENOENT and error.filename is None:  # of os.getcwd
            say("trainerd: the current folder was removed. Go to another one with `cd`.", err=True)
            sys.exit(UsageError.exit_code)
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO):
            traceback.print_exc()
            sys.exit(TrainerdError.exit_code)
        with contextlib.suppress(OSError):
            say(f"trainerd: its output cannot be written: {error.strerror}", err=True)
        _drop(sys.stdout)
        sys.exit(StorageError.exit_code)
    except Exception:
        traceback.print_exc()
        sys.exit(TrainerdError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _open_closed_streams() -> None:
    """Open the three standard streams, if whoever starts this process has closed them.

    No other file may get their descriptors: a library's output would be written into it.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            try:
                os.fstat(descriptor)
            except OSError:
                null = os.open(os.devnull, os.O_RDWR)
                if null != descriptor:
                    os.dup2(null, descriptor)
                    os.close(null)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _drop(stream: TextIO) -> None:
    """Send the rest of a stream's output nowhere: it would fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _for_stderr(text: str) -> str:
    """Return a text for standard error: in the journal a line is an error only if it says so; see sd-daemon(3)."""
    from logging_journald import check_journal_stream

    return "\n".join(f"<3>{line}" for line in text.splitlines()) if check_journal_stream() else text
