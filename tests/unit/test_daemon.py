"""Signals, watchdog and notifications."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import FakeTime
from tests.waiting import wait_for
from trainerd.config.schema import Config, SummaryConfig, WatchdogConfig
from trainerd.daemon.program import DaemonHost
from trainerd.daemon.systemd.notify import Notifier, status_line
from trainerd.daemon.systemd.watchdog import Watchdog
from trainerd.errors import InUseError
from trainerd.loop.flag import Flag, Request
from trainerd.loop.signals.dispatch import (
    DaemonFlag,
    daemon_listens,
    forget_pause,
    lent_session_listens,
    renew_handlers,
    session_listens,
    take_pause,
)
from trainerd.loop.signals.handlers import HANDLED, SAME_STOP_SECS, SignalThread, handled, stacks
from trainerd.run.settings import as_config
from trainerd.rundir import lock
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Phase, State
from trainerd.system.fork import undone_in_children

# ---------------------------------------------------------------------- signals


def wait_until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    wait_for(is_so, "what a signal brings", seconds)


@pytest.mark.parametrize(
    ("number", "request_"),
    [
        (signal.SIGTERM, Request.PAUSE),
        (signal.SIGINT, Request.PAUSE),
        (signal.SIGUSR1, Request.SAVE),
        (signal.SIGHUP, Request.RELOAD),
    ],
)
def test_a_signal_raises_the_flag_and_handlers_are_put_back(number: int, request_: Request) -> None:
    flag, before = Flag(), [signal.getsignal(n) for n in HANDLED]
    with handled(SignalThread(flag.raise_for)):
        os.kill(os.getpid(), number)
        wait_until(lambda: flag.is_raised)
    assert flag.take() == {request_}
    assert [signal.getsignal(n) for n in HANDLED] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_second_sigterm_exits_now(clock: FakeTime) -> None:
    exits = list[int]()
    thread = SignalThread(Flag().raise_for, exit_now=exits.append, monotonic=clock)
    thread.handle(signal.SIGTERM)
    assert exits == []
    clock.sleep(SAME_STOP_SECS)
    thread.handle(signal.SIGINT)
    assert exits == [signal.SIGINT]


def test_a_stop_that_is_received_twice_is_one_stop(clock: FakeTime) -> None:
    """As from timeout(1), which signals the process and then its group."""
    flag, exits = Flag(), list[int]()
    thread = SignalThread(flag.raise_for, exit_now=exits.append, monotonic=clock)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        thread.handle(number)
        clock.sleep(SAME_STOP_SECS / 4)
    assert flag.take() == {Request.PAUSE} and exits == []


def test_a_stop_that_is_received_twice_is_one_stop_though_the_first_takes_its_time(clock: FakeTime) -> None:
    """Raising the flag and a line in the log may take longer than half a second."""
    flag, exits = Flag(), list[int]()
    flag.bind(lambda raised: clock.sleep(60.0))
    thread = SignalThread(flag.raise_for, exit_now=exits.append, monotonic=clock)
    thread.handle(signal.SIGTERM)
    thread.handle(signal.SIGTERM)
    assert exits == []


def test_a_hangup_of_a_closed_terminal_pauses_and_does_not_count_as_a_sigterm() -> None:
    flag, exits = Flag(), list[int]()
    thread = SignalThread(flag.raise_for, terminal_is_gone=lambda: True, exit_now=exits.append)
    thread.handle(signal.SIGHUP)
    assert flag.take() == {Request.PAUSE}
    thread.handle(signal.SIGTERM)
    assert flag.take() == {Request.PAUSE} and exits == []


def test_an_error_in_what_one_signal_does_leaves_the_next_received(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr("trainerd.loop.signals.handlers.stacks", fail)
    flag = Flag()
    with handled(SignalThread(flag.raise_for)):
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: flag.is_raised)
    assert flag.take() == {Request.PAUSE}


def test_a_forked_child_keeps_neither_signals_nor_lock(rundir: RunDirectory) -> None:
    """What `multiprocessing` does where a job uses it."""
    flag = Flag()
    with lock.acquire(rundir) as held, undone_in_children(held.close), handled(SignalThread(flag.raise_for)):
        child = os.fork()
        if child == 0:
            own = signal.getsignal(signal.SIGTERM)
            os._exit(0 if not held.is_open and own == signal.SIG_DFL and signal.set_wakeup_fd(-1) == -1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not flag.is_raised
        with pytest.raises(InUseError), lock.acquire(rundir):
            pass


def test_a_signal_is_received_by_the_daemon_and_by_every_session_that_a_program_has_open() -> None:
    daemon, beside, within = DaemonFlag(), Flag(), Flag()
    daemon.reach_sessions()
    before = [signal.getsignal(n) for n in HANDLED]
    with daemon_listens(daemon):
        with lent_session_listens(daemon), session_listens(within):
            os.kill(os.getpid(), signal.SIGHUP)
            wait_until(lambda: daemon.is_raised and within.is_raised)
            assert daemon.take() == within.take() == {Request.RELOAD}
        with session_listens(beside):
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until(lambda: daemon.is_raised and beside.is_raised)
            assert not take_pause()  # it was, and that one knows
        assert take_pause() and not take_pause()
        assert daemon.take() == beside.take() == {Request.PAUSE} and not within.is_raised
        if (child := os.fork()) == 0:
            try:
                with session_listens(within):
                    os.kill(os.getpid(), signal.SIGTERM)
                    wait_until(lambda: within.is_raised)
                    os._exit(0 if not daemon.is_raised else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [signal.getsignal(n) for n in HANDLED] == before
    assert not take_pause()


def test_a_session_that_is_opened_in_another_after_a_pause_is_notified_too() -> None:
    outer, inner, after = Flag(), Flag(), Flag()
    with session_listens(outer):
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: outer.is_raised)
        assert outer.take() == {Request.PAUSE} and not take_pause()
        with session_listens(inner):
            assert inner.wants(Request.PAUSE)
        forget_pause()  # a person at a prompt goes on
        with session_listens(after):
            assert not after.is_raised


def test_a_pause_of_the_daemon_is_its_programs_whoever_asked() -> None:
    daemon, inner = DaemonFlag(), Flag()
    daemon.reach_sessions()
    with daemon_listens(daemon):
        daemon.raise_for(Request.PAUSE)  # a file, which the session has consumed
        assert daemon.take() == {Request.PAUSE}
        with lent_session_listens(daemon), session_listens(inner):
            assert inner.wants(Request.PAUSE)
        assert take_pause() and not take_pause()


def test_signals_are_received_until_the_last_session_has_ended_whichever_that_is() -> None:
    before = [signal.getsignal(n) for n in HANDLED]
    first, second = Flag(), Flag()
    one, other = contextlib.ExitStack(), contextlib.ExitStack()
    one.enter_context(session_listens(first))
    other.enter_context(session_listens(second))
    one.close()
    os.kill(os.getpid(), signal.SIGTERM)
    wait_until(lambda: second.is_raised)
    other.close()
    assert not first.is_raised and [signal.getsignal(n) for n in HANDLED] == before
    assert take_pause()


def test_a_session_of_another_thread_receives_what_is_received_already() -> None:
    main, alone, beside = Flag(), Flag(), Flag()
    heard: list[bool] = []

    def listen(flag: Flag, asks: Callable[[], None]) -> None:
        with session_listens(flag):
            asks()

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: main.is_raised and beside.is_raised)
        heard.append(True)

    def in_thread(flag: Flag, asks: Callable[[], None]) -> None:
        thread = threading.Thread(target=listen, args=(flag, asks))
        thread.start()
        thread.join()

    in_thread(alone, lambda: heard.append(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL))
    with session_listens(main):
        in_thread(beside, terminate)
    assert heard == [True, True] and not alone.is_raised and take_pause()


def test_handlers_are_put_back_with_the_main_threads_last_session() -> None:
    before = [signal.getsignal(n) for n in HANDLED]
    began, ends = threading.Event(), threading.Event()

    def listen() -> None:
        with session_listens(Flag()):
            began.set()
            ends.wait()

    thread = threading.Thread(target=listen)
    with session_listens(Flag()):
        thread.start()
        began.wait()
    assert [signal.getsignal(n) for n in HANDLED] == before
    ends.set()
    thread.join()


def test_a_job_that_sets_handlers_is_paused_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    daemon = DaemonFlag()
    with daemon_listens(daemon):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        renew_handlers()
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: daemon.is_raised)
        renew_handlers()
    assert caplog.text.count("the job replaced trainerd's signal handlers for SIGTERM.") == 1


def test_after_a_pause_that_a_person_resumes_from_a_signal_is_the_first_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainerd.loop.signals.handlers.SAME_STOP_SECS", 0.0)
    open_still, next_one = Flag(), Flag()
    with session_listens(open_still):
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: open_still.is_raised)
        assert forget_pause()
        with session_listens(next_one):
            os.kill(os.getpid(), signal.SIGINT)  # a second one would end this process
            wait_until(lambda: next_one.is_raised)
    assert take_pause()


def test_what_a_job_opens_receives_no_signal_and_is_not_kept_from_being_opened() -> None:
    daemon, evaluation = DaemonFlag(), Flag()
    with daemon_listens(daemon):
        with session_listens(evaluation):
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until(lambda: daemon.is_raised)
        assert not evaluation.is_raised and not take_pause()
    assert daemon.take() == {Request.PAUSE}


def test_ten_thousand_signals_lose_no_kind_of_request() -> None:
    flag, taken = Flag(), set[Request]()
    with handled(SignalThread(flag.raise_for)):
        for i in range(10_000):
            os.kill(os.getpid(), (signal.SIGUSR1, signal.SIGHUP)[i % 2])
        os.kill(os.getpid(), signal.SIGTERM)
        while Request.PAUSE not in taken:
            taken |= flag.take()
    assert taken == {Request.SAVE, Request.RELOAD, Request.PAUSE}


def test_the_stacks_of_every_thread_are_shown() -> None:
    stop = threading.Event()

    def a_function_to_look_for() -> None:
        stop.wait()

    thread = threading.Thread(target=a_function_to_look_for)
    thread.start()
    try:
        text = stacks()
    finally:
        stop.set()
        thread.join()
    assert "a_function_to_look_for" in text and "test_the_stacks_of_every_thread" in text


# ---------------------------------------------------------------------- systemd


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """A socket that hears what systemd would."""
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(tmp_path / "notify"))
    heard.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    return heard


def messages(manager: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(manager.recv(4096).decode())
        except BlockingIOError:
            return found


def test_ready_is_said_with_the_first_step_and_once(manager: socket.socket) -> None:
    with manager:
        notifier = Notifier()
        assert "NOTIFY_SOCKET" not in os.environ
        for phase in (Phase.STARTING, Phase.RESTORING, Phase.TRAINING, Phase.SAVING, Phase.TRAINING):
            notifier.observe(State(phase=phase))
        said = messages(manager)
        notifier.close()
    assert [m for m in said if not m.startswith("STATUS=")] == ["READY=1"]
    assert said.index("READY=1") == 2 and len(said) == 6


def test_a_status_is_short_and_in_utf_8(manager: socket.socket) -> None:
    with manager:
        notifier = Notifier()
        metrics = {f"точность-{n}": 1.0 for n in range(300)}
        notifier.observe(State(phase=Phase.TRAINING, metrics=metrics))
        ready, status = messages(manager)
        notifier.close()
    assert ready == "READY=1" and "точность-1 " in status and len(status.encode()) < 4096


def test_a_socket_that_is_gone_is_not_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notifier = Notifier()
    notifier.observe(State(phase=Phase.TRAINING))
    notifier.close()
    assert "cannot notify systemd" in caplog.text


def test_a_reload_before_the_first_step_is_not_taken_for_readiness(manager: socket.socket) -> None:
    with manager:
        notifier = Notifier()
        notifier.reloading()
        notifier.reloaded()
        notifier.observe(State(phase=Phase.TRAINING))
        notifier.reloading()
        notifier.reloaded()
        said = [m.split("\n")[0] for m in messages(manager)]
        notifier.close()
    assert said[0] == "READY=1" and said[1].startswith("STATUS=") and said[2:] == ["RELOADING=1", "READY=1"]


def test_ready_is_said_by_a_run_that_was_over_before(manager: socket.socket) -> None:
    with manager:
        notifier = Notifier()
        notifier.observe(State(phase=Phase.FINISHED))
        notifier.close()
        assert messages(manager)[0].startswith("READY=1")


def test_a_failure_is_never_ready(manager: socket.socket) -> None:
    with manager:
        notifier = Notifier()
        notifier.observe(State(phase=Phase.FAILED, error="why\nmore"))
        notifier.close()
        assert messages(manager) == ["STATUS=failed: step 0; why"]


def test_without_systemd_nothing_is_sent(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET")
    with manager:
        notifier = Notifier()
        notifier.observe(State(phase=Phase.TRAINING))
        notifier.close()
        assert messages(manager) == []


def test_a_status_line_is_one_line() -> None:
    state = State(
        phase=Phase.TRAINING, step=5, max_steps=9, metrics={"loss": 0.25}, steps_per_sec=1234.5, warnings=["a\nb"]
    )
    assert status_line(state) == "training: step 5 of 9, loss 0.25, 1234 steps/s; a b"


class Heard(Notifier):
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def send(self, text: str) -> None:
        self.said.append(text.partition("=")[0])


def watchdog(
    interval: float = 20.0, *, save_progress: Callable[[], object] = lambda: None, **config: Any
) -> tuple[Watchdog, Heard]:
    heard = Heard()
    return Watchdog(heard, interval, WatchdogConfig(**config), now=0.0, save_progress=save_progress), heard


def test_life_signs_come_with_steps_and_end_with_them() -> None:
    dog, heard = watchdog()
    for now in range(1, 100):
        dog.observe(State(phase=Phase.TRAINING, step=now), now)
        dog.beat(now)
    assert 15 <= heard.said.count("WATCHDOG") <= 25
    heard.said.clear()
    for now in range(100, 200):
        dog.beat(now)
    # The last step was at 99: until 109 the loop may be in the next one.
    assert 1 <= heard.said.count("WATCHDOG") <= 3


def test_a_hang_is_reported_once_before_systemd_ends_the_process() -> None:
    reported: list[float] = []
    dog = Watchdog(Heard(), 20.0, WatchdogConfig(), now=0.0, save_progress=lambda: None, hung=reported.append)
    for now in range(100):
        dog.observe(State(phase=Phase.TRAINING, step=min(now, 30) + (now >= 70)), now)
        dog.beat(now)
    assert len(reported) == 2 and all(18 <= each < 20 for each in reported)


def test_boundaries_without_a_step_are_no_progress() -> None:
    dog, heard = watchdog()
    dog.observe(State(phase=Phase.TRAINING, step=5), 1.0)
    for now in range(20, 100):
        dog.observe(State(phase=Phase.TRAINING, step=5), now)
        dog.beat(now)
    assert "WATCHDOG" not in heard.said


@pytest.mark.parametrize(
    ("phase", "config"),
    [
        (Phase.STARTING, "first_step_secs"),
        (Phase.RESTORING, "first_step_secs"),
        (Phase.FINISHING, "first_step_secs"),
        (Phase.EVALUATING, "evaluate_secs"),
    ],
)
def test_what_is_no_step_has_its_own_deadline(phase: Phase, config: str) -> None:
    deadlines: dict[str, Any] = {config: 500.0}
    dog, heard = watchdog(**deadlines)
    dog.observe(State(phase=phase), 0.0)
    for now in range(1, 1000):
        dog.beat(now)
    assert 90 <= heard.said.count("WATCHDOG") <= 110
    assert 90 <= heard.said.count("EXTEND_TIMEOUT_USEC") <= 110


def test_a_loop_that_is_not_seen_has_no_deadline() -> None:
    dog, heard = watchdog(first_step_secs=500.0)
    dog.observe(State(phase=Phase.UNMANAGED), 0.0)
    for now in range(1, 2000):
        dog.beat(now)
    assert heard.said.count("WATCHDOG") >= 390


def test_a_save_gets_time_only_while_bytes_are_written() -> None:
    written = 0
    dog, heard = watchdog(save_progress=lambda: written, save_secs=300.0)
    dog.observe(State(phase=Phase.SAVING), 0.0)
    for now in range(1, 100):
        written += 1
        dog.beat(now)
    assert heard.said.count("EXTEND_TIMEOUT_USEC") >= 18
    heard.said.clear()
    for now in range(100, 1000):
        dog.beat(now)
    assert heard.said.count("EXTEND_TIMEOUT_USEC") <= 2
    assert heard.said.count("WATCHDOG") <= 61


def test_without_a_watchdog_there_are_no_life_signs() -> None:
    dog, heard = watchdog(interval=0.0)
    for now in range(100):
        dog.observe(State(phase=Phase.TRAINING, step=now), now)
        dog.beat(now)
    assert heard.said == []


# ---------------------------------------------------------------------- programs


def test_the_daemons_config_says_when_the_curves_of_a_program_have_points(rundir: RunDirectory) -> None:
    config = Config(entry="job:main", logdir=str(rundir.path), summary=SummaryConfig(metrics_secs=3, metrics_steps=7))
    unused: Any = None
    host = DaemonHost(
        config,
        rundir,
        flag=Flag(),
        reporter=Reporter(State(), []),
        reload=lambda: None,
        ended=unused,
        failed=unused,
        made=unused,
    )
    found = host.effective_config(as_config(str(rundir.path), None, 0, 0, 1, 100), on_schedule=True)
    assert (found.summary.metrics_secs, found.summary.metrics_steps) == (3, 7)
