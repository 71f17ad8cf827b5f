"""Starts a daemon: the parent waits until training has begun, or until it knows why not."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from trainerd.config.schema import Config
from trainerd.daemon.keeping_alive import detach
from trainerd.daemon.process import TrainerProcess
from trainerd.errors import TrainerdError, full_message
from trainerd.loop.outcome import Outcome
from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer
from trainerd.rundir.state import UNMANAGED, Phase, State
from trainerd.system.exit import end
from trainerd.system.fork import undone_in_children


class StartError(TrainerdError):
    """The daemon could not start; its exit code says why."""

    summary = "the daemon could not begin"


def start(config: Config, overrides: Callable[[Config], Config], observers: Sequence[Observer] = ()) -> str:
    """Start a daemon that trains, and wait until it does.

    The lock is taken before the fork: of several starts at once all but one fail here.

    Args:
      config: what to train.
      overrides: see `TrainerProcess`.
      observers: are called in the daemon with each new state.

    Returns:
      A line for the person who started it.

    Raises:
      TrainerdError: what prevented it.
    """
    rundir = RunDirectory(config.rundir)
    rundir.create()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    with lock.acquire(rundir) as held:
        child = os.fork()
        if child == 0:
            os.close(reader)
            _become_daemon(config, overrides, observers, held, writer)
    # Closing its file here does not give the lock back: the daemon has it too.
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        message = pipe.readline()
    os.waitpid(child, 0)
    return _result(message, rundir)


def _result(message: str, rundir: RunDirectory) -> str:
    if not message:
        raise StartError(f"the daemon ended before training started. Its log says why: {rundir.log}.")
    result = json.loads(message)
    if "error" in result:
        error = StartError(result["error"])
        error.exit_code = result["code"]
        raise error
    return str(result["text"])


class _Parent:
    """The pipe to the parent, which waits."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def observe(self, state: State) -> None:
        """Report that training has begun."""
        if state.phase.has_begun:
            what = f"training in the background: pid {state.pid}, step {state.step}"
            if state.phase is Phase.UNMANAGED:
                what = f"{UNMANAGED}: pid {state.pid}"
            self.report({"text": f"{what}, in {state.logdir}"})

    def report_end(self, outcome: Outcome) -> None:
        """Report how training has ended."""
        self.report({"text": str(outcome)})

    def report(self, message: dict[str, Any]) -> None:
        """Send one message; the parent then stops waiting. It is not an error if it waits no more."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        try:
            os.write(descriptor, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            return
        finally:
            os.close(descriptor)

    def leave(self) -> None:
        """Close the pipe in a child of the daemon."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _become_daemon(
    config: Config,
    overrides: Callable[[Config], Config],
    observers: Sequence[Observer],
    held: lock.Lock,
    writer: int,
) -> None:
    """Detach, train, and end this process. Never returns: the caller's frames belong to the parent."""
    code = 70
    parent = _Parent(writer)
    try:
        detach(config.folder, [*held.descriptors, writer])
        process = TrainerProcess(
            config, overrides=overrides, observers=[parent.observe, *observers], capture=True, ended=parent.report_end
        )
        with undone_in_children(parent.leave):
            outcome = process.run_locked(held)
        parent.report_end(outcome)
        code = 0
    except TrainerdError as error:
        parent.report({"error": full_message(error), "code": error.exit_code})
        code = error.exit_code
    except BaseException:
        parent.report({"error": traceback.format_exc(), "code": code})
    finally:
        end(code)
