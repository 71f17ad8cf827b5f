"""What systemd does for a service in trouble, and what it must not do to one that is only slow."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.systemd.conftest import NewService
from tests.systemd.machine import wait_for
from tests.systemd.service import Service
from trainerd.checkpoints import manifest
from trainerd.rundir import run_events
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import Phase

SOON = "100ms"


def test_sigkill_is_followed_by_a_restart_from_memory(service: NewService) -> None:
    """As after a crash, or when the kernel runs out of memory."""
    one = service(RestartSec=SOON)
    one.systemctl("start")
    one.systemctl("kill", "--signal=USR1", "--kill-whom=main")
    [saved] = wait_for("a checkpoint", one.checkpoints)
    one.wait_for_progress()
    wait_for("a save to memory", lambda: one.state.memory_tier.step)
    tier = one.state.memory_tier
    assert tier.step is not None and tier.step > saved
    assert tier.path.startswith(f"/run/private/{one.unit.replace('@', '-')}/")
    one.machine.run("kill", "-KILL", str(one.pid))
    one.wait_until_training(restarts=1)
    [_, again] = one.first_steps()
    assert again > tier.step, "it resumes from memory"
    assert manifest.read(one.rundir.manifest(again - 1)).reason == "memory"
    one.systemctl("stop")
    assert one.machine.run("test", "-e", tier.path, check=False).returncode, "a stop leaves nothing in memory"


def test_an_oom_kill_loses_seconds(service: NewService) -> None:
    """The kernel kills the process in its control group; what is in memory counts for that group, and stays."""
    one = service("jobs:greedy", "[evaluate]\nevaluate_secs = 5\n", RestartSec=SOON, MemoryMax="3G", MemorySwapMax="0")
    one.systemctl("start")
    wait_for("a second start", lambda: len(one.first_steps()) > 1, seconds=120)
    assert one.show("MemoryMax") == str(3 << 30)
    assert one.first_steps()[1] > 1 and one.journal("EVENT=restored")
    one.systemctl("stop")


def test_a_config_error_is_not_tried_again(service: NewService) -> None:
    """The same config is as wrong a second later."""
    one = service(RestartSec=SOON)
    one.configure("trainerd.examples.counter", "max_stebs = 3\n")
    started = one.systemctl("start", check=False)
    assert started.returncode != 0
    assert one.wait_until_over() == "failed"
    assert one.show("ExecMainStatus") == "78"
    text = one.machine.output("journalctl", "-u", one.unit, "-b", "-o", "cat")
    assert "max_steps" in text
    assert "Traceback" not in text
    # Where systemd meant to start it again it would be in the state `activating (auto-restart)`.
    assert one.show("SubState") == "failed"
    assert one.show("NRestarts") == "0"


def test_a_job_that_does_not_import_is_tried_a_few_times(service: NewService) -> None:
    """Its disk may be late; but not for ever."""
    one = service("nowhere:job", RestartSec=SOON)
    one.machine.write(
        f"/etc/systemd/system/{one.unit}.service.d/limit.conf", "[Unit]\nStartLimitBurst=2\nStartLimitIntervalSec=1h\n"
    )
    one.machine.run("systemctl", "daemon-reload")
    one.systemctl("start", check=False)

    def given_up() -> bool:
        return one.show("SubState") == "failed" and one.show("NRestarts") == "2"

    wait_for("systemd to give up", given_up)
    assert one.show("ExecMainStatus") == "69"
    assert len(one.journal("EVENT=failed")) == 2


def test_a_hung_step_is_aborted_and_started_again(service: NewService) -> None:
    """The watchdog hears from the loop, and not from a thread beside it."""
    one = service("jobs:hangs", RestartSec=SOON, WatchdogSec="6s")
    one.systemctl("start")
    one.systemctl("kill", "--signal=USR1", "--kill-whom=main")
    [saved] = wait_for("a checkpoint", one.checkpoints)
    one.tell("hang")
    one.wait_until_training(restarts=1)
    assert one.first_steps() == [1, saved + 1]
    text = one.machine.output("journalctl", "-u", one.unit, "-b", "-o", "cat")
    assert "Watchdog timeout" in text
    assert "jobs.py" in text, "the journal must say where it hung"
    kinds = [event.kind for event in run_events.read(one.rundir)]
    assert kinds[kinds.index(EventKind.HANG) + 1] is EventKind.KILL


def test_what_is_slow_is_not_taken_for_hung(service: NewService) -> None:
    """Building the job, its first step and its evaluation take longer than every timeout of the unit."""
    more = "[evaluate]\nevaluate_secs = 1\n"
    one = service("jobs:slow", more, WatchdogSec="5s", TimeoutStartSec="4s", TimeoutStopSec="4s")
    one.systemctl("start")
    wait_for("an evaluation", lambda: one.journal("EVENT=evaluated"), seconds=40)
    one.wait_for_progress()
    assert one.show("NRestarts") == "0"
    assert one.show("ActiveState") == "active"
    assert one.first_steps() == [1]


def test_a_slow_save_gets_the_time_it_needs(service: NewService) -> None:
    """A stop outlasts TimeoutStopSec by far while bytes get written, and ends in peace."""
    one = service("jobs:big", TimeoutStopSec="6s")
    one.systemctl("start")
    with slow_writes(one, seconds=2):
        one.systemctl("stop")
    assert one.show("Result") == "success"
    assert one.show("ExecMainStatus") == "0"
    assert one.state.phase is Phase.PAUSED
    assert one.saved_steps == [one.state.step]
    saved = one.state.last_checkpoint
    assert saved is not None and saved.seconds is not None
    assert saved.seconds > 8, "the save was not slow: nothing was tested"


def test_a_hung_save_is_killed_in_the_end(service: NewService) -> None:
    """Where no byte gets written a stop is not put off for ever, and the checkpoint before is as it was."""
    one = service("jobs:hangs_in_save", TimeoutStopSec="4s")
    one.systemctl("start")
    one.systemctl("kill", "--signal=USR1", "--kill-whom=main")
    [saved] = wait_for("a checkpoint", one.checkpoints)
    one.wait_for_progress()
    one.tell("hang")
    one.systemctl("stop", "--no-block")
    assert one.wait_until_over(seconds=90) == "failed"
    assert one.show("Result") == "timeout"
    assert one.saved_steps == [saved]
    (one.rundir.path / "hang").unlink()
    one.systemctl("reset-failed")
    one.systemctl("start")
    assert one.first_steps() == [1, saved + 1]


@contextlib.contextmanager
def slow_writes(service: Service, seconds: float) -> Iterator[None]:
    """Have each writev(2) of a service, of 16 MiB at most, take so many seconds longer: a very slow disk."""
    pid = service.machine.outer_pid(service.pid)
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=writev"]
    command += ["-e", f"inject=writev:delay_enter={int(seconds * 1e6)}", "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
        try:
            wait_for("strace to hold every thread", lambda: _is_traced(pid))
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(tracer.pid, signal.SIGINT)


def _is_traced(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all("TracerPid:\t0\n" not in (task / "status").read_text() for task in tasks)


def test_a_stop_waits_for_no_evaluation(service: NewService) -> None:
    """An evaluation of a minute, and ten seconds of grace."""
    every = "[evaluate]\nevaluate_secs = 0\nevaluate_steps = 1000\n"
    one = service("jobs:evaluates_for_long", every, TimeoutStopSec="10s")
    one.systemctl("start")
    wait_for("an evaluation", lambda: one.state.phase is Phase.EVALUATING)
    begun = time.monotonic()
    one.systemctl("stop")
    assert time.monotonic() - begun < 10
    assert (one.show("Result"), one.show("ExecMainStatus")) == ("success", "0")
    assert one.state.phase is Phase.PAUSED and one.saved_steps == [1000]
    [paused] = one.journal("EVENT=paused")
    assert "the evaluation of step 1000 was abandoned" in paused["MESSAGE"]


def test_a_job_that_fails_at_one_step_shows_its_cause_and_is_given_up(service: NewService) -> None:
    """The tenth failure at one step is the last. tests/process makes all ten; here eight are written into the file."""
    one = service("jobs:fails", RestartSec="1h")
    one.systemctl("start", "--no-block")
    wait_for("its first failure", lambda: one.show("SubState") == "auto-restart")
    cause = "the job failed in step 5: ValueError: my own mistake"
    wait_for("its cause in `systemctl status`", lambda: cause in one.systemctl("status", check=False).stdout)
    one.systemctl("stop")
    set_failures(one, 8)
    one.adjust(RestartSec=SOON)
    one.systemctl("start", check=False)
    assert one.wait_until_over() == "failed"
    assert (one.show("ExecMainStatus"), one.show("NRestarts")) == ("65", "1")
    assert "failed 10 times at step 5" in one.systemctl("status", check=False).stdout
    assert one.journal("EVENT=failed")[-1]["MESSAGE"].startswith(cause)


def set_failures(service: Service, times: int) -> None:
    """Have the run remember so many failures at its step."""
    path = service.rundir.state
    state = json.loads(path.read_text())
    state["failure"]["times"] = times
    path.write_text(json.dumps(state))
