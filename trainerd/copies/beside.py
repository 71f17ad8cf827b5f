"""The copier beside a trainer: `trainerd run` and `trainerd start` start it for a run whose config has `[copy]`.

It has the user and the environment of the trainer, and so its credentials. A service of systemd has a unit for it
instead, since the trainer's has no network.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO

from trainerd.config import parse as configs
from trainerd.config.schema import Config
from trainerd.copies.status import read_copy_status
from trainerd.errors import InUseError, StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State
from trainerd.system.backoff import Backoff
from trainerd.system.machine import NAME
from trainerd.text import printable

log = logging.getLogger(__name__)

_FIRST_WAIT_SECS, _MOST_WAIT_SECS = 60.0, 3600.0
_MOST = 4096  # bytes of what the process printed last that are read


class CopierBeside:
    """Starts the process that copies a run when the run trains, and again if it ends before the run does.

    A run that a command line puts elsewhere is not copied: the destination is that of the config's own run.

    Args:
      config: the config of the trainer, with the changes of its command line.
      timer: seconds on a clock that is never set.
    """

    def __init__(self, config: Config, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._config, self._timer = config, timer
        is_service = "NOTIFY_SOCKET" in os.environ
        self._is_wanted = config.copy.to is not None and not config.rank and not is_service and _is_own_run(config)
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes]
        self._started_at = 0.0
        self._at = 0.0  # when it is started next
        self._backoff = Backoff(_FIRST_WAIT_SECS, _MOST_WAIT_SECS)
        self._warned = ""

    def observe(self, state: State) -> None:
        """Start the process if the run trains and it is due. Called with each new state of the run."""
        if self._process is not None and self._process.poll() is not None:
            code, self._process = self._process.returncode, None
            if self._timer() - self._started_at >= _MOST_WAIT_SECS:
                self._backoff.succeeded()
            self._at = self._timer() + self._backoff.failed()
            self._warn(self._error(code))
        if self._is_wanted and self._process is None and state.phase.has_begun and self._timer() >= self._at:
            try:
                self._process, self._started_at = self._start(), self._timer()
            except OSError as error:
                self._at = self._timer() + self._backoff.failed()
                self._warn(f"cannot start `{NAME} copy`: {error.strerror}")

    def _start(self) -> subprocess.Popen[bytes]:
        config, copy = self._config, self._config.copy
        options = ["--config", str(config.path), "--to", str(copy.to), "--max-mbit", str(copy.max_mbit)]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  the process has it
        return subprocess.Popen(
            [sys.executable, "-m", NAME, "copy", *options, "--while-training"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,
        )

    def _error(self, code: int) -> str:
        """Return the last error of the copy; empty if it has none, as when another process copies the run."""
        with self._stderr as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST))
            lines = file.read().decode(errors="replace").split("\n")
        with contextlib.suppress(StorageError):
            found = read_copy_status(RunDirectory(self._config.rundir))
            if found is not None and found.error:
                return found.error
        if code in (0, InUseError.exit_code):
            return ""
        said = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return f"`{NAME} copy` ended with exit code {code}: {printable(said.strip())}"

    def _warn(self, error: str) -> None:
        if error and error != self._warned:
            log.warning("the run is not copied: %s", error, extra={"event": "copy-failed"})
        self._warned = error


def _is_own_run(config: Config) -> bool:
    return config.path is not None and configs.load_rundir(config.path) == config.rundir
