"""Starts trainers fast: imports TensorFlow once, and forks a process for each before any op is run.

A process of its own, spoken to in lines of JSON. `{"run": [...arguments], "cwd": ..., "output": path}` is answered
with a pid, as is one with `{"program": file, "arguments": [...], "env": {...}, ...}`, whose last two may be missing;
`{"reap": pid}` with an exit code as the shell gives it, negative for a signal.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any


def _become(request: dict[str, Any]) -> None:
    """Become the `trainerd` command, or `python` with a program. Never returns."""
    os.setsid()
    os.chdir(request["cwd"])
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(request.get("env", {}))
    if "program" in request:
        sys.argv = [request["program"], *request.get("arguments", [])]
        sys.path.insert(0, request["cwd"])
        runpy.run_path(request["program"], run_name="__main__")
        sys.exit()
    from trainerd.cli import main

    code = 70
    try:
        main(request["run"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "reap" not in request:
            pid = os.fork()
            if pid == 0:
                _become(request)
            print(pid, file=answers, flush=True)
        else:
            _, status = os.waitpid(request["reap"], 0)
            print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    _serve()
