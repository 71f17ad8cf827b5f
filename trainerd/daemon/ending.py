"""The end of this process, which nothing that a job leaves running may put off for ever."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from typing import Any

PATIENCE_SECS = 10.0


def end_soon(code: int) -> None:
    """Where threads or processes of the job's are left that Python waits for at its end, see to it that it does end.

    They have `PATIENCE_SECS` to end by themselves. Then the processes are terminated, and the threads left where they
    are.

    Args:
      code: what this process exits with.
    """
    if _threads() or _processes():
        threading.Thread(target=_end, args=(code,), name="trainerd-end", daemon=True).start()


def _end(code: int) -> None:
    time.sleep(PATIENCE_SECS)
    names = [thread.name for thread in _threads()] + [process.name for process in _processes() if not process.daemon]
    print(f"trainerd: the job has left {', '.join(names)} running: the process ends without", file=sys.stderr)
    for process in _processes():
        process.terminate()
    try:
        if _threads():  # which Python waits for before it calls these
            atexit._run_exitfuncs()
        else:
            time.sleep(PATIENCE_SECS)  # they are being called
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _threads() -> list[threading.Thread]:
    main = threading.main_thread()
    return [thread for thread in threading.enumerate() if not thread.daemon and thread is not main]


def _processes() -> list[Any]:
    multiprocessing = sys.modules.get("multiprocessing")
    return [] if multiprocessing is None else multiprocessing.active_children()
