"""The state of the whole process, which belongs to no object: signal handlers, forks and exit handlers use it.

The table names each value. Its module makes it with `process_wide` and is the only one that changes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

WHAT = {
    "locks": "rundir/lock.py: the locks that this process holds, by their file",
    "waiting events": "rundir/run_events.py: events that could not be written yet, by their run directory",
    "undone in children": "system/fork.py: what a forked child calls before anything else",
    "forking": "system/fork.py: what a thread keeps from before a fork to after it",
    "listeners": "loop/signals/dispatch.py: the flags that a signal raises, and the handlers of signals",
    "open sessions": "loop/signals/open_sessions.py: the sessions that hold a run directory, by its path",
    "places": "workers/place.py: the place of this process among the workers; the last one counts",
    "devices": "job/devices.py: the devices that train together, as the config names them; the last one counts",
    "params": "job/params.py: the parameters of the script that runs; empty outside of one",
    "hosts": "run/host.py: the daemon that runs the program of this process; empty outside a daemon",
    "held run": "run/host.py: the run that a program of its own holds from its first call of fit to its end",
    "default logdirs": "run/host.py: the run directory of an estimator that names none; the last one counts",
    "redirects": "run/host.py: the run directory in which each fit trains while a script is proved",
    "calls of fit": "programs/keras/calls.py: the calls that this process has made, by run directory",
    "kept objects": "checkpoints/contents/kept.py: the objects of the program's own that each checkpoint holds",
    "paused": "run/host.py: the run directories in which this process was paused",
    "left": "run/host.py: the run directories in which this process has had a session",
    "log handlers": "daemon/logs.py: the handlers of the logger `trainerd`",
    "end signals": "watch/delivery/sender.py: the signals that asked a sender to end",
    "terminal": "system/terminal.py: the settings of the terminal before single keys are read, by its descriptor",
    "hash seeds": "proof/life.py: a seed of Python's hashes for each process that `prove` starts",
}
T = TypeVar("T")


def process_wide(name: str, value: T) -> T:
    """Return the value, which the whole process has under this name of `WHAT`."""
    return value


@contextlib.contextmanager
def within(values: list[T], value: T) -> Iterator[None]:
    """Have a value in a list of the process while the block runs."""
    values.append(value)
    try:
        yield
    finally:
        values.remove(value)
