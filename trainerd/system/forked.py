"""Processes that a job forks while its own code is called: copies of the trainer, without its threads."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def ended_in_children() -> Iterator[None]:
    """A child that is forked in the block ends where it leaves it, whether by an error, an exit, or its end.

    What the trainer does from there on is not for it to do, and it could not: what it would wait for has no thread.
    """
    trainer = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() == trainer:
            raise
        _end(error)
    if os.getpid() != trainer:
        _end(SystemExit(0))


def _end(error: BaseException) -> NoReturn:
    """End this process as Python would. Nothing that a thread of the trainer's may have locked is waited for."""
    code = 1
    try:
        if not isinstance(error, SystemExit):
            os.write(2, "".join(traceback.format_exception(error)).encode(errors="replace"))
        elif isinstance(error.code, int | None):
            code = (error.code or 0) & 0xFF
        else:
            os.write(2, f"{error.code}\n".encode(errors="replace"))
        sys.stdout.flush()
    finally:
        os._exit(code)
