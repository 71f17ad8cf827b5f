"""Processes that are started again: real ones, which end at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainerd.daemon.keeping_alive import Kept, keep_alive

ENDS = """
import os, pathlib, sys
path = pathlib.Path(sys.argv[1])
path.open("a").write("x")
code = eval(sys.argv[2])[len(path.read_text()) - 1]
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def kept(folder: Path, name: str, codes: str) -> Kept:
    command = [sys.executable, "-c", ENDS, str(folder / name), codes]
    return Kept(command, os.environ, name, is_shown=False)


def test_what_lost_another_worker_or_was_killed_is_started_again(tmp_path: Path) -> None:
    reported: list[str] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 1.0  # of the waits; processes take their own time
        os.sched_yield()

    one = kept(tmp_path, "one", "[76, -9, 0]")
    assert keep_alive([one], report=reported.append, timer=lambda: now[0], sleep=sleep) == 0
    assert (tmp_path / "one").read_text() == "xxx" and one.starts == 3
    assert reported == [
        "one exited with 76; restarting it",
        "one restarted",
        "one was killed (SIGKILL); restarting it",
        "one restarted",
    ]


@pytest.mark.parametrize(("codes", "code"), [("[70]", 70), ("[0]", 0), ("[76, 78]", 78)])
def test_what_fails_otherwise_ends_permanently(tmp_path: Path, codes: str, code: int) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 1.0

    assert keep_alive([kept(tmp_path, "one", codes)], timer=lambda: now[0], sleep=sleep) == code


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    keep_alive([kept(tmp_path, "one", "[0]")])
    assert signal.getsignal(signal.SIGTERM) is before


def test_one_that_has_ended_ends_one_that_waits(tmp_path: Path) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 1.0
        if waits.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                waits.process.wait(0.01)

    waits = Kept([sys.executable, "-c", "import time; time.sleep(600)"], os.environ, "waits", is_shown=False)
    assert keep_alive([kept(tmp_path, "one", "[70]"), waits], timer=lambda: now[0], sleep=sleep) == 70
    assert waits.code == 0, "it ended as it was told to"


def test_one_that_ends_a_little_later_is_left_alone(tmp_path: Path) -> None:
    """It may be past its handlers, at the end of its interpreter."""
    later = Kept([sys.executable, "-c", "import time; time.sleep(1)"], os.environ, "later", is_shown=False)
    assert keep_alive([kept(tmp_path, "one", "[0]"), later]) == 0
    assert later.process is not None and later.process.returncode == 0
