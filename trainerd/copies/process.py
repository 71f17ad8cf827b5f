"""The process that copies a run: one at a time, at low priority, until it is stopped."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainerd.checkpoints.retention import Policy
from trainerd.config.schema import Config
from trainerd.copies.copier import CopiedRun, Copier
from trainerd.copies.layout import CopyWriter, RunCopy
from trainerd.copies.status import read_copy_status
from trainerd.errors import CopyError, InUseError, StorageError, TrainerdError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state
from trainerd.system.backoff import Backoff
from trainerd.system.durable_files import storage
from trainerd.system.regular_files import open_to_append

log = logging.getLogger(__name__)

LOOK_SECS = 1.0
_POLL_SECS = 0.1
_FIRST_WAIT_SECS, _MOST_WAIT_SECS = 2.0, 300.0
_MACHINE_ID = Path("/etc/machine-id")


def policy_of(config: Config | None) -> Policy:
    """Return which checkpoints a copy keeps."""
    if config is None:
        return Policy()
    keep, own = config.copy, config.checkpoint
    return Policy(
        keep_last=keep.keep_last,
        keep_every_hours=keep.keep_every_hours,
        best=config.parsed_best(),
        keep_best=own.keep_best,
        keep_minima=own.keep_minima if own.minima else 0,
    )


def writer_of(rundir: RunDirectory) -> CopyWriter:
    """Return the words by which a copy names this run directory."""
    machine = b""
    with contextlib.suppress(OSError):
        machine = _MACHINE_ID.read_bytes()
    return CopyWriter(socket.gethostname(), hashlib.sha256(machine).hexdigest()[:16], str(rundir.path.resolve()))


@contextlib.contextmanager
def only_copier(
    rundir: RunDirectory, patience_secs: float = 0.0, sends: Callable[[int], None] = lambda step: None
) -> Iterator[None]:
    """Be the only process that copies this run, while the block runs.

    Args:
      rundir: the run directory.
      patience_secs: for which another one may hold the run without sending a checkpoint: it may be about to end.
      sends: called again and again while another one sends a checkpoint, with its step.

    Raises:
      InUseError: another one does.
    """
    deadline = time.monotonic() + patience_secs
    with contextlib.ExitStack() as stack:
        with storage(f"write {rundir.copying}"):
            descriptor = open_to_append(rundir.copying)
            stack.callback(os.close, descriptor)
            while not _is_locked(descriptor):
                status = read_copy_status(rundir) if patience_secs else None
                if status is not None and status.sending is not None:
                    deadline = time.monotonic() + patience_secs
                    sends(status.sending)
                if time.monotonic() >= deadline:
                    raise InUseError(
                        f"another process copies {rundir.path} already: it holds {rundir.copying}. Stop it with "
                        "Ctrl-C, or with `systemctl stop` of its unit trainerd-copy. One that the trainer started ends "
                        "after the run. Then run the command again."
                    )
                time.sleep(_POLL_SECS)
        yield


def _is_locked(descriptor: int) -> bool:
    """Lock a file. Returns False if another process has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def copy_once(run: CopiedRun, copy: RunCopy, *, takes_over: bool = False) -> Copier:
    """Copy all that a run has now. Returns the copier, which has the status.

    Args:
      run: the run.
      copy: its copy.
      takes_over: see `Copier.open`.

    Raises:
      TrainerdError: see `Copier.open` and `Copier.check`.
    """
    copier = Copier(run)
    try:
        _copy_all(copier, run, copy, takes_over=takes_over)
    except (CopyError, StorageError) as error:
        copier.failed(error)
        raise
    return copier


def _copy_all(copier: Copier, run: CopiedRun, copy: RunCopy, *, takes_over: bool = False) -> None:
    copier.open(copy, read_state(run.rundir.state), takes_over=takes_over)
    while copier.check():
        pass


def follow(
    run: CopiedRun,
    connect: Callable[[], RunCopy],
    stop: threading.Event,
    *,
    takes_over: bool = False,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Copy a run as it trains, until it is stopped. An error of the destination or of the disk is tried again.

    Args:
      run: the run.
      connect: opens its copy.
      stop: is set when it is to stop.
      takes_over: see `Copier.open`.
      is_over: whether no process trains the run. This returns when all of it is copied then.

    Raises:
      ConfigError, InUseError, DataError, NotRunningError: trying again would not help.
      CopyError, StorageError: the run is over, and many tries have failed.
    """
    copier, backoff = Copier(run, stopped=stop.is_set), Backoff(_FIRST_WAIT_SECS, _MOST_WAIT_SECS)
    while not stop.is_set():
        try:
            with contextlib.closing(connect()) as copy:
                copier.open(copy, read_state(run.rundir.state), takes_over=takes_over)
                takes_over = False
                while not stop.is_set():
                    if is_over():
                        _copy_all(copier, run, copy)
                        if is_over():  # it may have been started again meanwhile
                            return
                    has_more = copier.check()
                    backoff.succeeded()
                    if not has_more:
                        stop.wait(LOOK_SECS)
        except (CopyError, StorageError) as error:
            if stop.is_set():
                return
            wait = backoff.failed()
            log.warning("the copy failed: %s It is tried again in %.0f s", error, wait, extra={"event": "copy-failed"})
            _say_failed(copier, error)
            if wait >= _MOST_WAIT_SECS and is_over():
                raise
            stop.wait(wait)
        except TrainerdError as error:
            _say_failed(copier, error)
            raise


def _say_failed(copier: Copier, error: TrainerdError) -> None:
    with contextlib.suppress(StorageError):
        copier.failed(error)
