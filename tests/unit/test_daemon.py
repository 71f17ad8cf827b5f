"""Lock, signals, watchdog and notifications."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import logging
import logging.config
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.conftest import FakeTime
from trainerd import lock
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.config import WatchdogConfig
from trainerd.daemon import logs
from trainerd.daemon.logs import LogFile
from trainerd.daemon.systemd import Notifier, status_line
from trainerd.daemon.watchdog import Watchdog
from trainerd.errors import InUseError, StorageError
from trainerd.rundir import RunDirectory
from trainerd.sessions.fake import FakeSnapshot
from trainerd.state import Phase, State, read_state
from trainerd.supervisor.children import undone_in_children
from trainerd.supervisor.flag import Flag, Request
from trainerd.supervisor.signals import HANDLED, SAME_STOP_SECS, SignalThread, handled, stacks
from trainerd.supervisor.statefile import StateFile
from trainerd.supervisor.ticker import Ticker

# ---------------------------------------------------------------------- the lock


def test_a_lock_has_one_holder(odd_rundir: RunDirectory) -> None:
    with lock.hold(odd_rundir) as held:
        held.name_holder(os.getpid())
        with pytest.raises(InUseError, match=f"process {os.getpid()} trains in"), lock.hold(odd_rundir):
            pass
        holder = lock.read_holder(odd_rundir)
        assert holder is not None and holder.pid == os.getpid()
    with lock.hold(odd_rundir):
        pass


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_log_that_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path, outside = tmp_path / "trainerd.log", tmp_path / "outside"
    outside.touch()
    os.mkfifo(path) if kind == "fifo" else path.symlink_to(outside)
    with (
        pytest.raises(StorageError, match="cannot open the log"),
        logs.logging_to(path, level="info", state=State, capture=False),
    ):
        pass
    assert not outside.read_bytes()


def _logged(path: Path, *acts: Callable[[], object]) -> list[str]:
    """The messages in a log, of one record before these acts and one after each, when trainerd was made heard."""
    with logs.logging_to(path, level="info", state=State, capture=False, terminal=logging.NullHandler()):
        logging.getLogger("trainerd.unit").info("message 0")
        for number, act in enumerate(acts, 1):
            act()
            logs.be_heard()
            logging.getLogger("trainerd.unit").info("message %d", number)
        logging.getLogger("another").warning("of another")
        logging.getLogger("another").info("too little")
    return [" ".join(line.split()[2:]) for line in path.read_text().splitlines()]


def test_a_job_that_sets_up_logging_does_not_silence_the_log(tmp_path: Path) -> None:
    root, before = logging.getLogger(), list(logging.getLogger().handlers)
    loggers = [each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    heard = [each for each in loggers if not each.disabled]
    try:
        said = _logged(
            tmp_path / "log",
            lambda: logging.basicConfig(force=True),
            lambda: logging.config.dictConfig({"version": 1}),
            lambda: logging.config.dictConfig({"version": 1, "loggers": {"trainerd": {"handlers": []}}}),
        )
    finally:
        root.handlers[:] = before
        root.setLevel(logging.WARNING)
        for each in heard:  # dictConfig disables all that there are
            each.disabled = False
    assert said[:4] == [f"message {number}" for number in range(4)]


def test_each_record_is_in_the_log_once(tmp_path: Path) -> None:
    assert _logged(tmp_path / "log", lambda: None) == ["message 0", "message 1", "of another"]


def test_a_job_that_logs_to_the_terminal_too_has_each_line_there_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root, kept = logging.getLogger(), io.StringIO()
    jobs: list[logging.Handler] = [logging.StreamHandler(sys.stderr), logging.StreamHandler(kept)]
    terminal = logging.StreamHandler(sys.stderr)
    with logs.logging_to(tmp_path / "log", level="info", state=State, capture=False, terminal=terminal):
        for handler in jobs:
            root.addHandler(handler)
        try:
            for _ in range(3):
                logs.be_heard()
            logging.getLogger("trainerd.some").info("ours")
            logging.getLogger("job").warning("the job's")
        finally:
            for handler in jobs:
                root.removeHandler(handler)
    assert capfd.readouterr().err.splitlines().count("ours") == 1
    assert kept.getvalue().splitlines() == ["ours", "the job's"]


def test_a_log_that_was_moved_or_removed_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    said = _logged(path, lambda: path.rename(tmp_path / "log.old"), path.unlink)
    assert said == ["message 2", "of another"]
    assert "message 0" in (tmp_path / "log.old").read_text()


def test_a_log_in_whose_place_is_something_else_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def replace() -> None:
        path.rename(tmp_path / "log.old")
        path.mkdir()

    said = _logged(path, replace, lambda: None, path.rmdir)
    assert said == ["message 3", "of another"]
    assert "message 2" in (tmp_path / "log.old").read_text()  # as long as there is one


def test_a_log_goes_on_in_a_folder_that_was_moved(tmp_path: Path) -> None:
    """What is lost there must be read somewhere."""
    folder = tmp_path / "run"
    folder.mkdir()
    said = _logged(folder / "log", lambda: folder.rename(tmp_path / "moved"), lambda: None, folder.mkdir)
    assert said == ["message 3", "of another"]
    assert "message 2" in (tmp_path / "moved" / "log").read_text()


def test_a_process_holds_a_place_once_even_where_the_folder_was_removed(rundir: RunDirectory) -> None:
    """Two runs of one process would take each other's files for their own."""
    with lock.hold(rundir) as held:
        held.name_holder(os.getpid())
        assert not lock.was_removed(rundir)
        shutil.rmtree(rundir.path)
        rundir.create()
        assert lock.was_removed(rundir)
        with pytest.raises(InUseError, match="That is this process"), lock.hold(rundir):
            pass
        rundir.lock.touch()
        assert lock.was_removed(rundir)
    with lock.hold(rundir):
        assert not lock.was_removed(rundir)


def test_a_lock_that_another_has_written_into_is_another_s(rundir: RunDirectory) -> None:
    """Where a network's file system has lost the flock: the same file, with another name in it."""
    with lock.hold(rundir) as held:
        held.name_holder(os.getpid())
        rundir.lock.write_text(json.dumps({"pid": 1, "create_time": 0.0, "uptime_at_start": 0.0}))
        assert not lock.is_in_place(rundir)
        held.close()  # as a child that was forked does
        assert lock.is_in_place(rundir)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match=f"cannot lock {rundir.lock}"), lock.hold(rundir):
        pass


def test_a_lock_that_cannot_be_written_names_its_file(rundir: RunDirectory) -> None:
    with Path("/dev/full").open("r+b", buffering=0) as full:
        held = lock.Held(rundir.lock, full)
        with pytest.raises(StorageError, match=f"cannot write {rundir.lock}: No space left"):
            held.name_holder(os.getpid())


@pytest.mark.parametrize("content", ["", "garbage", "123", '{"pid": 1}', "[]", '{"pid": "x"}'])
def test_a_stale_or_garbled_lock_file_is_no_lock(rundir: RunDirectory, content: str) -> None:
    rundir.lock.write_text(content)
    assert lock.read_holder(rundir) is None
    with lock.hold(rundir):
        pass


def test_who_was_moved_away_writes_nothing_into_what_has_taken_its_place(rundir: RunDirectory, tmp_path: Path) -> None:
    flag = Flag()
    ticker, state_file, store = Ticker(flag, rundir), StateFile(rundir), CheckpointStore(rundir)
    with lock.hold(rundir) as held:
        held.name_holder(os.getpid())
        for change in (lambda: None, lambda: rundir.path.rename(tmp_path / "moved"), rundir.create, rundir.lock.touch):
            change()
            assert lock.is_in_place(rundir)
        rundir.lock.write_text(json.dumps({"pid": 1, "create_time": 0.0, "uptime_at_start": 0.0}))
        rundir.pause.touch()
        with pytest.raises(StorageError, match="is another run's now"):
            store.publish(FakeSnapshot(1, 1.0), About("request"))
        state_file.observe(State())
        ticker.poll()
        assert flag.wants(Request.PAUSE)  # nothing can be saved any more: it ends, and says so
    assert sorted(path.name for path in rundir.path.iterdir()) == [rundir.lock.name, rundir.pause.name]
    assert lock.is_in_place(rundir)


def test_a_lock_or_a_state_that_may_not_be_read_does_not_pass_for_none(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's run: nothing may be said of it, least of all that nothing trains there."""

    def refuse(*args: object, **kwargs: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "listdir", refuse)
    for look in (lambda: lock.read_holder(rundir), lambda: read_state(rundir.state), rundir.steps):
        with pytest.raises(StorageError, match=r"Permission denied.*sudo"):
            look()


def test_a_pid_that_belongs_to_another_process_now_is_not_the_holder(rundir: RunDirectory) -> None:
    with lock.hold(rundir) as held:
        held.name_holder(os.getpid())
    content = json.loads(rundir.lock.read_text())
    content["uptime_at_start"] -= 3600
    rundir.lock.write_text(json.dumps(content))
    assert lock.read_holder(rundir) is None


def test_a_lock_that_cannot_be_made(rundir: RunDirectory, tmp_path: Path) -> None:
    rundir.lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError), lock.hold(rundir):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_holder_whose_name_is_not_written_yet_is_respected(rundir: RunDirectory) -> None:
    with rundir.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InUseError, match="another process"), lock.hold(rundir):
            pass


# ---------------------------------------------------------------------- signals


def wait_until(true: object, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)


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
    with handled(SignalThread(flag)):
        os.kill(os.getpid(), number)
        wait_until(lambda: flag.is_raised)
    assert flag.take() == {request_}
    assert [signal.getsignal(n) for n in HANDLED] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_second_sigterm_exits_now(clock: FakeTime) -> None:
    exits = list[int]()
    thread = SignalThread(Flag(), exit_now=exits.append, monotonic=clock)
    thread.handle(signal.SIGTERM)
    assert exits == []
    clock.sleep(SAME_STOP_SECS)
    thread.handle(signal.SIGINT)
    assert exits == [signal.SIGINT]


def test_a_stop_that_is_heard_twice_is_one_stop(clock: FakeTime) -> None:
    """As from timeout(1), which signals the process and then its group."""
    flag, exits = Flag(), list[int]()
    thread = SignalThread(flag, exit_now=exits.append, monotonic=clock)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        thread.handle(number)
        clock.sleep(SAME_STOP_SECS / 4)
    assert flag.take() == {Request.PAUSE} and exits == []


def test_a_stop_that_is_heard_twice_is_one_stop_though_the_first_takes_its_time(clock: FakeTime) -> None:
    """Raising the flag and a line in the log may take longer than half a second."""
    flag, exits = Flag(), list[int]()
    flag.bind(lambda raised: clock.sleep(60.0))
    thread = SignalThread(flag, exit_now=exits.append, monotonic=clock)
    thread.handle(signal.SIGTERM)
    thread.handle(signal.SIGTERM)
    assert exits == []


def test_a_hangup_of_a_closed_terminal_pauses_and_does_not_count_as_a_sigterm() -> None:
    flag, exits = Flag(), list[int]()
    thread = SignalThread(flag, terminal_is_gone=lambda: True, exit_now=exits.append)
    thread.handle(signal.SIGHUP)
    assert flag.take() == {Request.PAUSE}
    thread.handle(signal.SIGTERM)
    assert flag.take() == {Request.PAUSE} and exits == []


def test_an_error_in_what_one_signal_does_leaves_the_next_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr("trainerd.supervisor.signals.stacks", fail)
    flag = Flag()
    with handled(SignalThread(flag)):
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: flag.is_raised)
    assert flag.take() == {Request.PAUSE}


def test_a_forked_child_keeps_neither_signals_nor_lock(rundir: RunDirectory) -> None:
    """What `multiprocessing` does where a job uses it."""
    flag = Flag()
    with lock.hold(rundir) as held, undone_in_children(held.close), handled(SignalThread(flag)):
        child = os.fork()
        if child == 0:
            own = signal.getsignal(signal.SIGTERM)
            os._exit(0 if not held.is_open and own == signal.SIG_DFL and signal.set_wakeup_fd(-1) == -1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not flag.is_raised
        with pytest.raises(InUseError), lock.hold(rundir):
            pass


def test_ten_thousand_signals_lose_no_kind_of_request() -> None:
    flag, taken = Flag(), set[Request]()
    with handled(SignalThread(flag)):
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
    assert "cannot notify" in caplog.text


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


def watchdog(interval: float = 20.0, **config: float) -> tuple[Watchdog, Heard]:
    heard = Heard()
    return Watchdog(heard, interval, WatchdogConfig(**config), now=0.0), heard


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


def test_boundaries_without_a_step_are_no_progress() -> None:
    dog, heard = watchdog()
    dog.observe(State(phase=Phase.TRAINING, step=5), 1.0)
    for now in range(20, 100):
        dog.observe(State(phase=Phase.TRAINING, step=5), now)
        dog.beat(now)
    assert "WATCHDOG" not in heard.said


@pytest.mark.parametrize(
    ("phase", "config"),
    [(Phase.STARTING, "first_step_secs"), (Phase.RESTORING, "first_step_secs"), (Phase.EVALUATING, "evaluate_secs")],
)
def test_what_is_no_step_has_its_own_deadline(phase: Phase, config: str) -> None:
    dog, heard = watchdog(**{config: 500.0})
    dog.observe(State(phase=phase), 0.0)
    for now in range(1, 1000):
        dog.beat(now)
    assert 90 <= heard.said.count("WATCHDOG") <= 110
    assert 90 <= heard.said.count("EXTEND_TIMEOUT_USEC") <= 110


def test_a_save_gets_time_only_while_bytes_are_written() -> None:
    dog, heard = watchdog(save_secs=300.0)
    written = 0
    dog.save_progress = lambda: written
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


# ---------------------------------------------------------------------- logs


def test_the_log_file_stays_small_and_takes_printed_lines_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    monkeypatch.setattr("trainerd.daemon.logs.MAX_BYTES", 2000)
    kept = [os.dup(1), os.dup(2)]
    try:
        handler = LogFile(tmp_path / "log", capture=True)
        for i in range(400):
            handler.emit(logging.makeLogRecord({"msg": f"line {i}", "levelname": "INFO"}))
        os.write(2, b"printed by C++\n")
        handler.close()
    finally:
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
    assert "printed by C++" in (tmp_path / "log").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log", "log.1", "log.2", "log.3"]
