"""The daemon, as a person starts and steers it: real commands, TensorFlow imported after the fork."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cases import every
from tests.process.conftest import write_config
from tests.process.trainers import first_steps, saved
from tests.waiting import wait_for
from trainerd.loop.signals.handlers import SAME_STOP_SECS
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

COMMAND = [sys.executable, "-m", "trainerd"]


def trainerd(project: Path, *arguments: str, code: int = 0) -> str:
    """Run a command to its end; all that it printed."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


@pytest.fixture
def rundir(project: Path) -> Iterator[RunDirectory]:
    """The project's run directory; a daemon that is left there is killed."""
    rundir = RunDirectory(project / "run")
    yield rundir
    if (holder := read_holder(rundir)) is not None:
        os.kill(holder.pid, signal.SIGKILL)


# What `trainerd status --json` prints, by a process that fails if it has imported what takes long.
QUICK_STATUS = """
import sys
from trainerd.cli import main
try:
    main(["status", "--json"])
finally:
    assert not {"tensorflow", "keras", "numpy", "rich"} & set(sys.modules)
"""


def followed_lines(project: Path) -> list[str]:
    """The next three lines of the log, as `trainerd logs -f` prints them until Ctrl-C."""
    command = [*COMMAND, "logs", "-f", "-n", "0"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as follow:
        assert follow.stdout is not None
        lines = [follow.stdout.readline() for _ in range(3)]
        follow.send_signal(signal.SIGINT)
        assert follow.wait(timeout=30) == 130
    return lines


def test_a_daemons_life(project: Path, rundir: RunDirectory) -> None:
    write_config(project, more="[log]\nprogress_secs = 0.2\n")
    started = trainerd(project, "start")
    match = re.search(r"training in the background: pid (\d+), step (\d+)", started)
    assert match and int(match[2]) >= 1
    pid = int(match[1])
    process = psutil.Process(pid)
    assert process.ppid() != os.getpid()
    assert process.terminal() is None and os.getsid(pid) != os.getsid(0)
    assert process.cwd() == str(project)

    assert f"process {pid} trains in" in trainerd(project, "start", code=75)
    assert f"training (pid {pid})" in trainerd(project, "status")
    found = json.loads(subprocess.check_output([sys.executable, "-c", QUICK_STATUS], cwd=project))
    assert found["running"] and found["phase"] == "training" and found["pid"] == pid
    assert all("step" in line for line in followed_lines(project))

    saved_text = trainerd(project, "save", "--wait")
    match = re.search(r"saved step (\d+)", saved_text)
    assert match and int(match[1]) in saved(rundir)
    trainerd(project, "save")
    wait_for(lambda: len(rundir.steps()) >= 2, "the second checkpoint")

    paused = trainerd(project, "pause", "--wait")
    match = re.search(r"paused at step (\d+)", paused)
    assert match and saved(rundir)[0] == int(match[1])
    assert read_holder(rundir) is None
    assert "paused" in trainerd(project, "status")
    assert "nothing to pause" in trainerd(project, "pause")

    log = trainerd(project, "logs", "--lines", "1000")
    assert "saved step" in log and "paused" in log
    trainerd(project, "start")
    assert first_steps(rundir.log.read_text())[-1] == int(match[1]) + 1
    trainerd(project, "pause", "--wait")


def _is_removed(folder: Path) -> bool:
    """Remove a folder in which a trainer may be writing a file just now. Return whether it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_a_run_that_was_removed_and_another_never_train_in_one_place(project: Path, rundir: RunDirectory) -> None:
    """Whichever takes the folder first that is made anew has it: the other ends, and says why."""
    write_config(project)
    command = [*COMMAND, "run"]
    with subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as first:
        try:
            wait_for(
                lambda: (state := read_state(rundir.state)) and state.phase is Phase.TRAINING, "the first to train"
            )
            wait_for(lambda: _is_removed(rundir.path), "a moment at which nothing is written there")
            second = subprocess.run([*COMMAND, "start"], cwd=project, capture_output=True, text=True, timeout=60)
            assert second.returncode in (0, 75), second.stderr
            if second.returncode == 0:
                _, text = first.communicate(timeout=60)
                assert first.returncode == 74 and "belongs to another run now" in text, text
            else:
                holder = read_holder(rundir)
                assert holder is not None and holder.pid == first.pid
            match = re.search(r"paused at step (\d+)", trainerd(project, "pause", "--wait"))
            assert match and saved(rundir)[0] == int(match[1])
        finally:
            first.kill()
    wait_for(lambda: read_holder(rundir) is None, "the end of the run")


@pytest.mark.long
def test_a_start_returns_though_the_job_has_processes_of_its_own(project: Path, rundir: RunDirectory) -> None:
    """And they end with it, and what it wants done when its process ends is."""
    write_config(project, entry="jobs:workers")
    assert "training in the background" in trainerd(project, "start")
    holder = read_holder(rundir)
    assert holder is not None
    daemon = psutil.Process(holder.pid)
    workers = daemon.children()
    assert len(workers) == 3
    assert "paused at step" in trainerd(project, "pause", "--wait")
    assert psutil.wait_procs([daemon, *workers], timeout=20)[1] == []
    assert [path.name for path in project.glob("farewell-*")] == [f"farewell-{holder.pid}"]


@pytest.mark.long
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&-"])
def test_a_start_needs_none_of_the_standard_streams(project: Path, rundir: RunDirectory, closed: str) -> None:
    write_config(project)
    trainerd_command = f"{sys.executable} -m trainerd"
    assert subprocess.run(f"{trainerd_command} start {closed}", cwd=project, shell=True, timeout=120).returncode == 0
    holder = read_holder(rundir)
    assert holder is not None
    targets = {str(Path(f"/proc/{holder.pid}/fd/{number}").readlink()) for number in range(3)}
    assert targets == {"/dev/null", str(rundir.log)}
    assert subprocess.run(f"{trainerd_command} pause --wait {closed}", cwd=project, shell=True).returncode == 0


@pytest.mark.parametrize("command", ["logs", "--help"])
def test_what_cannot_be_said_is_an_error_of_one_line(project: Path, rundir: RunDirectory, command: str) -> None:
    write_config(project)
    rundir.create()
    rundir.log.write_text("a line\n")
    line = f"{sys.executable} -m trainerd {command} > /dev/full"
    done = subprocess.run(line, cwd=project, shell=True, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 74
    assert done.stderr == "trainerd: its output cannot be written: No space left on device\n"


def test_a_start_that_fails_says_why_with_its_code(project: Path, rundir: RunDirectory) -> None:
    write_config(project, entry="jobs:nothing")
    assert "has no 'nothing'" in trainerd(project, "start", code=69)
    write_config(project, entry="jobs:nan", more="max_steps = 10\n")
    assert "training in the background" in trainerd(project, "start")
    wait_for(lambda: read_holder(rundir) is None, "the end of the run")
    assert "Finished" in (text := trainerd(project, "start")) or "finished: max_steps = 10" in text


def test_a_daemon_that_fails_later_reports_to_who_asks(project: Path, rundir: RunDirectory) -> None:
    write_config(project, entry="jobs:slow_step")
    trainerd(project, "start")
    with subprocess.Popen([*COMMAND, "pause", "--wait"], cwd=project, stderr=subprocess.PIPE, text=True) as pause:
        # Killed before it can pause: the waiting command must not report a success.
        holder = read_holder(rundir)
        assert holder is not None
        (project / "hang").touch()
        os.kill(holder.pid, signal.SIGKILL)
        _, error = pause.communicate(timeout=60)
    assert pause.returncode == 0 or "final state" in error
    assert not (state := read_state(rundir.state)) or state.phase is not Phase.PAUSED or saved(rundir)


@pytest.mark.parametrize("library", every(4, ["libtensorflow_framework", "numpy", "", "h5py"]))
def test_sigterm_during_the_import_of_tensorflow(project: Path, rundir: RunDirectory, library: str) -> None:
    """The signal comes as soon as the process has loaded a library: a different point of the import for each."""
    write_config(project)
    with subprocess.Popen([*COMMAND, "run"], cwd=project, stderr=subprocess.PIPE, text=True) as run:
        wait_for(lambda: rundir.state.exists(), "the process to begin")
        maps = Path(f"/proc/{run.pid}/maps")
        wait_for(lambda: library in maps.read_text(), f"the import of {library}")
        run.send_signal(signal.SIGTERM)
        _, text = run.communicate(timeout=60)
    assert run.returncode == 0, text
    state = read_state(rundir.state)
    assert state is not None and state.phase is Phase.PAUSED
    assert "Traceback" not in text


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, project: Path, *arguments: str) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(project)
            os.environ.update(TERM="xterm", COLUMNS="100", LINES="40")
            os.execv(sys.executable, [*COMMAND, *arguments])
        self.text = ""

    def until(self, pattern: str) -> str:
        """Read until something is shown."""
        deadline = time.monotonic() + 90
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, f"waited for {pattern!r} in:\n{self.text}"
            try:
                self.text += os.read(self._descriptor, 65536).decode(errors="replace")
            except OSError:  # how a terminal says that the other side is closed
                assert re.search(pattern, self.text), f"no {pattern!r} in:\n{self.text}"
        return self.text

    def type(self, text: bytes) -> None:
        """Press keys."""
        os.write(self._descriptor, text)

    def settings(self) -> int:
        """The local modes of the terminal."""
        modes: int = termios.tcgetattr(self._descriptor)[3]
        return modes

    def hang_up(self) -> None:
        """Close the terminal's window."""
        os.close(self._descriptor)

    def code(self) -> int:
        """Wait for the end; the exit code."""

        def reap() -> int | None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return status if pid else None

        return os.waitstatus_to_exitcode(wait_for(reap, "the end"))


def test_on_a_terminal_metrics_are_live_and_ctrl_c_saves(project: Path, rundir: RunDirectory) -> None:
    write_config(project, more="max_steps = 1000000000\n")
    terminal = Terminal(project, "run")
    text = terminal.until(r"steps/s[\s\S]*left")
    for part in ("training", "step", "rate", "memory", "Ctrl-C saves and exits"):
        assert part in text
    terminal.type(b"\x03")
    text = terminal.until(r"resume in the background")
    assert "Paused on request." in text and "resume at the next step" in text
    assert terminal.code() == 0
    terminal.hang_up()
    assert saved(rundir)


def test_keys_save_and_pause_and_the_terminal_is_restored(project: Path, rundir: RunDirectory) -> None:
    write_config(project, more="max_steps = 1000000000\n[checkpoint]\nsave_model_secs = 0\n")
    terminal = Terminal(project, "run")
    before = terminal.settings()
    terminal.until(r"steps/s[\s\S]*s saves · p pauses · l hides the log · m metrics")
    assert not terminal.settings() & (termios.ECHO | termios.ICANON) and terminal.settings() & termios.ISIG
    had = len(saved(rundir))
    terminal.type(b"s")
    terminal.until("asked for a checkpoint")
    wait_for(lambda: len(saved(rundir)) > had, "a checkpoint")
    terminal.type(b"l")
    terminal.until("the log is hidden")
    terminal.type(b"p")
    terminal.until("press p again to save and exit")
    terminal.type(b"p")
    assert "Paused on request." in terminal.until(r"resume in the background")
    assert terminal.settings() == before
    assert terminal.code() == 0
    terminal.hang_up()


@pytest.mark.long
def test_a_second_ctrl_c_restores_the_terminal_too(project: Path, rundir: RunDirectory) -> None:
    write_config(project, entry="jobs:slow_step", more="max_steps = 1000000000\n")
    terminal = Terminal(project, "run")
    before = terminal.settings()
    terminal.until(r"steps/s[\s\S]*m metrics")
    (project / "hang").touch()
    wait_for(lambda: (project / "go.waiting").exists(), "the step to hang")
    terminal.type(b"\x03")
    terminal.until(r"pausing at the next step")
    paused_at = time.monotonic()
    wait_for(lambda: time.monotonic() > paused_at + SAME_STOP_SECS, "a second Ctrl-C that is not the same stop")
    terminal.type(b"\x03")
    terminal.until("a second SIGINT")
    assert terminal.code() == -signal.SIGINT and terminal.settings() == before
    terminal.hang_up()


@pytest.mark.long
def test_a_terminal_that_is_closed_pauses_the_run(project: Path, rundir: RunDirectory) -> None:
    write_config(project)
    terminal = Terminal(project, "run")
    terminal.until(r"steps/s")
    terminal.hang_up()
    assert terminal.code() == 0
    assert saved(rundir)
    state = read_state(rundir.state)
    assert state is not None and state.phase is Phase.PAUSED
