"""One life of a run that is being proved: a process that trains as `trainerd run` does, and writes a trace.

Two real starts differ in more than the run directory: the seed of hash(), and with it the order of sets; the pid; the
  clock; the working directory, as after a restored backup. Each life is an interpreter of its own, and differs in all
  of these.
"""

from __future__ import annotations

import functools
import itertools
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainerd.checkpoints import catalogue
from trainerd.checkpoints.lineage import Change
from trainerd.checkpoints.manifest import FINISH, About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config.schema import Config
from trainerd.daemon import tensorflow_import
from trainerd.daemon.process import TrainerProcess
from trainerd.errors import JobError, PeerLostError, ProofError, TrainerdError, full_message
from trainerd.history.run_job import is_program
from trainerd.job.definition import Job
from trainerd.loop.contract import Session
from trainerd.loop.flag import Flag
from trainerd.proof.check import at_epoch_end, measured
from trainerd.proof.folders import mirrored
from trainerd.proof.plan import Interruption, InterruptionKind
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state
from trainerd.system.process_wide import process_wide
from trainerd.workers.place import Place, set_place

_HASH_SEED = "PYTHONHASHSEED"
_SPAWN = multiprocessing.get_context("spawn")  # a new interpreter
_numbers = process_wide("hash seeds", itertools.count(1))
_starts = threading.Lock()  # of several workers at once


def begin(config: Config, lineage: Sequence[Change] = (), workers: int = 1) -> list[str]:
    """Make the checkpoint at which every run of a proof begins: the state before the first step.

    Args:
      config: the job.
      lineage: what is to be done to every run on its way.
      workers: how many train the runs together. One alone makes the checkpoint, as the chief of so many.

    Returns:
      The warnings: of what no checkpoint holds, and of an evaluation that changes the state.

    Raises:
      ProofError: the job cannot be built; with its own error.
    """
    rundir = RunDirectory(config.rundir)
    rundir.create()
    warnings = rundir.path / "warnings"
    in_a_process(functools.partial(_begin, config, warnings, lineage, workers), rundir.path / "output", config.folder)
    return warnings.read_text(encoding="utf-8").splitlines()


def _begin(config: Config, warnings: Path, lineage: Sequence[Change], workers: int) -> None:
    set_place(Place(0, workers))
    handler = logging.FileHandler(warnings, encoding="utf-8")
    handler.setLevel(logging.WARNING)
    logging.getLogger("trainerd").addHandler(handler)
    tensorflow_import.prepare()
    from trainerd.proof.traced.session import open_untraced

    session = open_untraced(config, trial_steps=1)
    store = CheckpointStore(RunDirectory(config.rundir))
    store.publish(session.snapshot(), About("begin", fingerprint=dict(session.fingerprint()), lineage=tuple(lineage)))
    session.bind(Flag())
    at_epoch_end(session.run_until(session.step + 1))
    for _ in measured(session, refuse=config.deterministic):
        pass


def live(config: Config, interruption: Interruption | None) -> int:
    """Train from the newest checkpoint, until the end or the interruption.

    Returns:
      The exit code: 0 if it was paused or has finished, -9 if it was killed.

    Raises:
      ProofError: it ended with an error of its own.
    """
    with ThreadPoolExecutor(max(1, len(config.addresses))) as pool:
        others = [pool.submit(_live_beside, replace(config, rank=rank)) for rank in range(1, len(config.addresses))]
        work = functools.partial(_live, config, interruption)
        code = in_a_process(work, config.rundir / "output", config.folder)
        for each in others:
            each.result()
    killed = interruption is not None and interruption.kind is InterruptionKind.KILL and code == -signal.SIGKILL
    if code < 0 and not killed:
        raise ProofError(f"the run was killed by {signal.Signals(-code).name}, which was not one of the interruptions.")
    return code


def _live_beside(config: Config) -> None:
    """Run one life of a worker that is not the chief."""
    RunDirectory(config.rundir).create()
    try:
        in_a_process(functools.partial(_live, config, None), config.rundir / "output", config.folder)
    except ProofError:
        state = read_state(RunDirectory(config.rundir).state)
        if state is None or state.exit_code != PeerLostError.exit_code:  # the chief was killed, as it was to be
            raise


def _live(config: Config, interruption: Interruption | None) -> None:
    def open_session(config: Config, engine: Any) -> Session:
        from trainerd.proof.traced import session

        return session.open_untraced(config, engine)

    def traced(session: Session) -> Session:
        from trainerd.proof.trace import Trace
        from trainerd.proof.traced.session import TracedSession

        return TracedSession(session, Trace(config.rundir / "trace"), interruption)

    from trainerd.run.host import redirected

    def with_digest(job: Job) -> Job:
        from trainerd.proof.traced import session

        return session.with_digest(job)

    options = {"wrap": with_digest, "writes": False}
    process = TrainerProcess(
        config, open_session=open_session, around=traced, options=options, capture=True, chdir=False
    )
    with redirected(config.rundir):
        try:
            process.run()
        except JobError:
            if not (is_program(config.entry) and _has_finished(config)):
                raise


def _has_finished(config: Config) -> bool:
    """Return whether the run has ended at its last step. What follows in a script may need a longer `fit`."""
    newest = catalogue.newest(RunDirectory(config.rundir))
    return newest is not None and newest.step == config.max_steps and newest.reason == FINISH


def in_a_process(work: Callable[[], None], output: Path, folder: Path | None = None) -> int:
    """Call a function that imports TensorFlow in an interpreter of its own, whose output goes to a file.

    Args:
      work: the function; it can be pickled.
      output: the file for its output.
      folder: its working directory is a copy of this one by links.

    Returns:
      The exit code.

    Raises:
      ProofError: it failed.
    """
    # What it puts there goes with it: one that is killed leaves everything behind.
    with tempfile.TemporaryDirectory(prefix="trainerd-", ignore_cleanup_errors=True) as scratch:
        place = mirrored(folder, Path(scratch, "folder")) if folder is not None else Path(scratch)
        process = _SPAWN.Process(target=_run, args=(work, output, scratch, place))
        with _starts, _another_hash_seed():
            process.start()
        try:
            process.join()
        finally:  # on Ctrl-C too
            process.kill()
            process.join()
    code = process.exitcode or 0
    if code > 0:
        error = _error_file(output)
        said = error.read_text(encoding="utf-8") if error.exists() else output.read_text(errors="replace")[-2000:]
        raise ProofError(f"the run ended by itself, with {code}:\n{said}")
    return code


def _run(work: Callable[[], None], output: Path, scratch: str, place: Path) -> None:
    os.environ["TMPDIR"], tempfile.tempdir = scratch, None
    os.environ["XDG_STATE_HOME"] = scratch  # no run that `trainerd list` is to show
    os.chdir(place)
    with output.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    try:
        work()
    except TrainerdError as failed:
        _error_file(output).write_text(full_message(failed), encoding="utf-8")
        sys.exit(failed.exit_code)


def _error_file(output: Path) -> Path:
    return output.with_name("error")


@contextmanager
def _another_hash_seed() -> Iterator[None]:
    """Give each interpreter that starts in the block another hash seed, unless the user has chosen one."""
    chosen = os.environ.get(_HASH_SEED)
    if chosen is None or chosen == "random":
        os.environ[_HASH_SEED] = str(next(_numbers))
    try:
        yield
    finally:
        if chosen is None:
            os.environ.pop(_HASH_SEED, None)
        else:
            os.environ[_HASH_SEED] = chosen
