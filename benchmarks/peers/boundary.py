"""The tiny job behind the daemon's own signal handling: says when each signal's boundary was taken.

It is what `trainerd run` does between a signal and a boundary: the handlers, the thread that reads them, the flag and
the loop in the graph. What a boundary is then used for (a save) is left out. The parent sends SIGUSR1.
"""

from __future__ import annotations

import time

from benchmarks import jobs
from benchmarks.peers.contract import say
from trainerd.loop.flag import Flag, Request
from trainerd.loop.signals.handlers import SignalThread, handled
from trainerd.sessions.tf2.job_session import FunctionSession

FAR = 2**62


def main() -> None:
    """Train until SIGTERM."""
    flag = Flag()
    session = FunctionSession(jobs.tiny())
    session.bind(flag)
    session.run_until(1)
    with handled(SignalThread(flag.raise_for)):
        say(ready=True)
        taken: set[Request] = set()
        while Request.PAUSE not in taken:
            session.run_until(FAR)
            # CLOCK_MONOTONIC is one clock for all processes: the parent subtracts its own.
            now = time.monotonic_ns()
            taken = flag.take()
            if Request.SAVE in taken:
                say(at=now, step=session.step)


if __name__ == "__main__":
    main()
