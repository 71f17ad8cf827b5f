"""The end of this process: nothing that a job leaves running may delay it forever."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import psutil

PATIENCE_SECS = 10.0
LOOK_SECS = 0.25  # between two checks of what a process waits for
AT_EXIT_SECS = 2.0  # for what is registered with atexit, where the process ends on another thread than the main one


def end(code: int) -> NoReturn:
    """End this process as Python does, without unwinding its frames: a daemon's callers belong to the parent.

    Args:
      code: what it exits with.
    """
    end_soon(code)
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # as in the children that multiprocessing forks
        atexit._run_exitfuncs()  # the job's own, which end its workers, and TensorFlow's, which has files in /tmp
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def end_now(code: int) -> NoReturn:
    """End this process from any thread, whatever its other threads do. The job's own processes end too.

    Args:
      code: what it exits with.
    """
    try:
        for process in _processes():
            process.terminate()
        # What the job has registered may wait for threads that are stuck.
        leaving = threading.Thread(target=atexit._run_exitfuncs, name="trainerd-leaving", daemon=True)
        leaving.start()
        leaving.join(AT_EXIT_SECS)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def end_soon(code: int) -> None:
    """Bound the end of this process, if the job leaves threads or processes that Python waits for at exit.

    They have `PATIENCE_SECS` to end by themselves. Then the processes are terminated, and the threads abandoned. A
    process that only waits for a queue, which nobody fills any more, is terminated at once.

    Args:
      code: what this process exits with.
    """
    if _threads() or _processes():
        threading.Thread(target=_end, args=(code,), name="trainerd-end", daemon=True).start()


def _end(code: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECS
    while (_threads() or _processes()) and time.monotonic() < deadline:
        waiting = [process for process in _processes() if waits_for_queue(process.pid)]
        time.sleep(LOOK_SECS)
        for process in waiting:
            if waits_for_queue(process.pid):  # still
                process.terminate()
    threads = _threads()
    names = [each.name for each in [*threads, *_processes()]]
    if not names:  # something else takes its time, such as what the job has registered with atexit
        return
    print(f"trainerd: the job has left {', '.join(names)} running: the process ends without", file=sys.stderr)
    for process in _processes():
        process.terminate()
    if not threads:
        return
    try:
        atexit._run_exitfuncs()  # Python calls them when the threads have ended
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def waits_for_queue(pid: int) -> bool:
    """Return whether a process only waits for a pipe or a lock, as for a `multiprocessing.Queue`.

    False for a process with children, since it may wait for them.
    """
    try:
        if psutil.Process(pid).children():
            return False
        waits = [(task / "wchan").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except (OSError, psutil.Error):
        return False
    return all("futex" in each or "pipe" in each for each in waits)


def _threads() -> list[threading.Thread]:
    main = threading.main_thread()
    return [thread for thread in threading.enumerate() if not thread.daemon and thread is not main]


def _processes() -> list[Any]:
    multiprocessing = sys.modules.get("multiprocessing")
    children = [] if multiprocessing is None else multiprocessing.active_children()
    return [child for child in children if not child.daemon]  # Python ends the others itself
