"""A driven run in the user's own process: trainerd's loop, called as a function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from trainerd.config.schema import Config
from trainerd.loop.contract import Session
from trainerd.loop.outcome import LOOP_ENDED, Outcome
from trainerd.run import driven
from trainerd.run.host import Host, host_of
from trainerd.run.trial import Trial
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer


def train_here(
    make: Callable[..., Session], config: Config, observers: Sequence[Observer] = (), *, host: Host | None = None
) -> Outcome:
    """Train in this process, on this thread, with the signals, files, status and resume of the daemon.

    In a program that a daemon runs, the daemon holds the run directory, and its config counts.

    It resumes from the newest checkpoint of `config.rundir`, and returns when the run is paused or finished. Signals
    are handled on Python's main thread alone. A pause ends the process with 0 if the loop cannot come to a boundary:
    in an evaluation, or in a step that never ends.

    Args:
      make: builds the session, with the config that counts. It is called with the run directory held, so no
        checkpoint of it changes meanwhile. A host that tries or proves the program passes options of the session:
        see `KerasJobSession`.
      config: what to train, how often to save, and when to end. Its `entry` names the job in manifests.
      observers: called with each new state of the run.
      host: holds the run directory, and receives signals. Default: the daemon, or this process for this call.

    Returns:
      How the run ended.

    Raises:
      Paused: this process was asked to pause before, by a signal or in that run directory.
      InUseError: another process trains in that run directory.
      DataError: it holds the run of another job, or no checkpoint of it can be used.
      JobError: a step failed. The state of the last boundary was saved if it is sound.
      StorageError: the save at the end could not be written.
    """
    rundir = RunDirectory(config.rundir)
    host = host or host_of(rundir, config.entry)
    if isinstance(host, Trial):
        host.take(make)
    config = host.effective_config(config, on_schedule=True)
    with host.session(rundir, observers, saves=True) as reporter:
        assert reporter is not None
        reporter.set(**config.description())
        try:
            with contextlib.closing(host.made(make, config)) as session:
                outcome = driven.train(config, session, rundir, host, reporter)
        except BaseException as error:
            host.report_end(LOOP_ENDED, error)
            raise
        host.report_end(outcome)
        return outcome
