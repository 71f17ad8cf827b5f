"""Another Python, with a trainerd of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainerd.config.software import NAMES
from trainerd.errors import StorageError, UsageError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import read_state

_ASKED_SECS = 20.0
_NOT_PASSED_ON = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "TRAINERD_RANK")
_VERSIONS = (
    "import json, platform; from importlib import metadata\n"
    "found = {d.metadata['Name']: d.version for d in metadata.distributions()}\n"
    "print(json.dumps({'python': platform.python_version(), **found}))"
)


@dataclass(frozen=True)
class TrialDifference:
    """The distance between the ends of two trials.

    Attributes:
      relative: the largest difference, as a share of the largest element of its tensor, or of the metric; infinity
        if it cannot be computed.
      where: of what.
      count: how many variables were compared.
    """

    relative: float
    where: str
    count: int


class TimedOutError(Exception):
    """A process was not done in time. The message says how far it had come."""


@dataclass(frozen=True)
class Python:
    """One Python.

    Attributes:
      program: its path. It is not resolved: a virtual environment is found by the link that it has.
      versions: of what is installed there that matters, by name; empty if it was not asked.
      nice: how far it makes way for other processes; see nice(1).
    """

    program: Path
    versions: Mapping[str, str] = field(default_factory=dict)
    nice: int = 0

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {self.versions[name]}" for name in NAMES if name in self.versions)
        return f"{self.program} ({versions})"

    @classmethod
    def find(cls, said: Path, scratch: Path) -> Python:
        """Return the Python that a person names.

        Args:
          said: a folder of a virtual environment, or a program.
          scratch: an empty folder.

        Raises:
          UsageError: it is none, or has no trainerd.
        """
        program = (said / "bin" / "python" if said.is_dir() else said).absolute()
        if not os.access(program, os.X_OK) or program.is_dir():
            is_missing = "does not exist" if not program.exists() else "is not a program"
            raise UsageError(
                f"--python {said}: {program} {is_missing}. Name a virtual environment, or the python in it; "
                "`python3 -m venv NEW` makes one."
            )
        versions = _asked(program, scratch)
        if "trainerd" not in versions:
            raise UsageError(f"--python {said}: trainerd is not installed there. `{program} -m pip install` it.")
        return cls(program, versions)

    def train(self, options: Sequence[str], rundir: RunDirectory, scratch: Path, seconds: float) -> str:
        """Run `trainerd run` with these options.

        Args:
          options: what is typed.
          rundir: the run directory that they name.
          scratch: the working directory, and for temporary files.
          seconds: the longest that it may take.

        Returns:
          The first line of its error; empty if there was none.

        Raises:
          TimedOutError: it took longer; it was killed.
        """
        output = rundir.path / "output"
        try:
            code = self._run(["-m", "trainerd", "run", *options], output, scratch, seconds)
        except subprocess.TimeoutExpired:
            state = read_state(rundir.state)
            came = f"was {state.phase}, at step {state.step}" if state is not None else "had not begun"
            raise TimedOutError(f"{self} {came}") from None
        return "" if code == 0 else self._error(rundir, output, code)

    def compare(self, one: Path, other: Path, scratch: Path, seconds: float) -> TrialDifference:
        """Compare the variables of the checkpoints with these prefixes.

        Raises:
          StorageError: they cannot be compared.
          TimedOutError: it took longer than so many seconds.
        """
        output = scratch / "compared"
        try:
            code = self._run(["-m", "trainerd.proof.traced.variables", str(one), str(other)], output, scratch, seconds)
        except subprocess.TimeoutExpired:
            raise TimedOutError("the two ends were being compared") from None
        lines = output.read_text(errors="replace").splitlines()
        if code or not lines:
            raise StorageError(
                f"the final checkpoints could not be compared: {lines[-1] if lines else f'exit code {code}'}"
            )
        return TrialDifference(*json.loads(lines[-1]))

    def _run(self, arguments: Sequence[str], output: Path, scratch: Path, seconds: float) -> int:
        """Run a program; what it has started ends with it. Returns the exit code."""
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
        state = str(scratch / "state")  # no run that `trainerd list` is to show
        environment |= {"TMPDIR": str(scratch), "XDG_STATE_HOME": state, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        with (
            output.open("wb") as file,
            subprocess.Popen(
                [str(self.program), *arguments],
                cwd=scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                self._renice(process.pid)
                return process.wait(seconds)
            finally:
                _kill_group(process.pid)

    def _renice(self, pid: int) -> None:
        """Have a process make way for the run that trains meanwhile: for the CPU, and when memory runs out."""
        if self.nice:
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + self.nice)
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/oom_score_adj").write_text("1000")

    def _error(self, rundir: RunDirectory, output: Path, code: int) -> str:
        """Return the error of a process: the one in its state, or else the last line that it printed."""
        state = read_state(rundir.state)
        if state is not None and state.error:
            return state.error.splitlines()[0]
        lines = output.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with {code}"


def _asked(program: Path, scratch: Path) -> dict[str, str]:
    """Return the versions of what is installed in a Python."""
    asked = [str(program), "-c", _VERSIONS]
    try:
        done = subprocess.run(asked, cwd=scratch, capture_output=True, text=True, timeout=_ASKED_SECS, check=False)
        return {str(name).lower(): str(version) for name, version in json.loads(done.stdout).items()}
    except (OSError, subprocess.TimeoutExpired, ValueError, AttributeError):
        raise UsageError(f"--python: {program} is not a Python that can list its installed packages.") from None


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
