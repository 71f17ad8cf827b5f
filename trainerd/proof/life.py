"""One life of a run that is being proved: a process that trains as `trainerd run` does, and writes a trace."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import Config
from trainerd.daemon import quiet
from trainerd.daemon.process import TrainerProcess
from trainerd.errors import ProofError, TrainerdError, full_message
from trainerd.proof.plan import Interruption, Kind
from trainerd.rundir import RunDirectory
from trainerd.sessions.contract import Session

_FORK = multiprocessing.get_context("fork")  # this process has no TensorFlow, and gets none


def begin(config: Config) -> None:
    """Make the checkpoint at which every run of a proof begins: the state before the first step.

    Raises:
      ProofError: the job cannot be had; with its own error.
    """
    rundir = RunDirectory(config.rundir)
    rundir.create()
    in_a_process(lambda: _begin(config), rundir.path / "output")


def _begin(config: Config) -> None:
    os.chdir(config.folder)
    quiet.hush_tensorflow()
    from trainerd.proof import traced

    rundir = RunDirectory(config.rundir)
    session = traced.open_session(config, rundir.path / "trace", None)
    CheckpointStore(rundir).publish(session.snapshot(), About("begin", fingerprint=session.fingerprint()))


def live(config: Config, interruption: Interruption | None) -> int:
    """Train from the newest checkpoint, until the end or the interruption.

    Returns:
      The exit code: 0 where it was paused or has finished, -9 where it was killed.

    Raises:
      ProofError: it ended with an error of its own.
    """
    code = in_a_process(lambda: _live(config, interruption), config.rundir / "output")
    killed = interruption is not None and interruption.kind is Kind.KILL and code == -signal.SIGKILL
    if code < 0 and not killed:
        raise ProofError(f"the run died of {signal.Signals(-code).name}, which was none of the interruptions.")
    return code


def _live(config: Config, interruption: Interruption | None) -> None:
    def open_session(config: Config) -> Session:
        from trainerd.proof import traced

        return traced.open_session(config, config.rundir / "trace", interruption)

    TrainerProcess(config, open_session=open_session, capture=True).run()


def in_a_process(work: Callable[[], None], output: Path) -> int:
    """Do something that imports TensorFlow in a process of its own, whose output goes to a file. The exit code.

    Raises:
      ProofError: it failed.
    """
    error = output.with_name("error")

    def run() -> None:
        os.environ["TMPDIR"], tempfile.tempdir = scratch, None
        with output.open("ab") as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
        try:
            work()
        except TrainerdError as failed:
            error.write_text(full_message(failed), encoding="utf-8")
            sys.exit(failed.exit_code)

    # What it puts there goes with it: one that is killed leaves everything behind.
    with tempfile.TemporaryDirectory(prefix="trainerd-", ignore_cleanup_errors=True) as scratch:
        process = _FORK.Process(target=run)
        process.start()
        try:
            process.join()
        finally:  # on Ctrl-C too
            process.kill()
            process.join()
    code = process.exitcode or 0
    if code > 0:
        said = error.read_text(encoding="utf-8") if error.exists() else output.read_text(errors="replace")[-2000:]
        raise ProofError(f"the run ended by itself, with {code}:\n{said}")
    return code
