"""The log of a run directory, and what a job does to logging."""

from __future__ import annotations

import io
import itertools
import logging
import logging.config
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.conftest import Cli
from trainerd.cli.display import Display
from trainerd.daemon import logs
from trainerd.daemon.log_handlers import LogFile
from trainerd.daemon.tensorflow_import import stderr_to
from trainerd.errors import StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State


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
            logs.restore_handlers()
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
            lambda: logging.disable(logging.CRITICAL),
        )
    finally:
        logging.disable(logging.NOTSET)
        root.handlers[:] = before
        root.setLevel(logging.WARNING)
        for each in heard:  # dictConfig disables all that there are
            each.disabled = False
    assert said[:5] == [f"message {number}" for number in range(5)]


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
                logs.restore_handlers()
            logging.getLogger("trainerd.some").info("ours")
            logging.getLogger("job").warning("the job's")
        finally:
            for handler in jobs:
                root.removeHandler(handler)
    assert capfd.readouterr().err.splitlines().count("ours") == 1
    assert kept.getvalue().splitlines() == ["ours", "the job's"]


@pytest.mark.parametrize("make", [lambda: None, lambda: Display().handler], ids=["lines", "display"])
def test_a_person_sees_each_record_also_while_tensorflow_speaks_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], make: Callable[[], logging.Handler | None]
) -> None:
    path = tmp_path / "log"
    with logs.logging_to(path, level="info", state=State, capture=False, terminal=make()), stderr_to(path):
        logging.getLogger("trainerd.unit").error("worker 1 is gone")
        os.write(2, b"of C++\n")
    assert capfd.readouterr().err.endswith("worker 1 is gone\n")
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["gone", "C++"]


def test_a_log_that_was_moved_or_removed_is_restarted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    said = _logged(path, lambda: path.rename(tmp_path / "log.old"), path.unlink)
    assert said == ["message 2", "of another"]
    assert "message 0" in (tmp_path / "log.old").read_text()


def test_a_log_in_whose_place_is_something_else_continues_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def replace() -> None:
        path.rename(tmp_path / "log.old")
        path.mkdir()

    said = _logged(path, replace, lambda: None, path.rmdir)
    assert said == ["message 3", "of another"]
    assert "message 2" in (tmp_path / "log.old").read_text()  # as long as there is one


def test_a_log_continues_in_a_folder_that_was_moved(tmp_path: Path) -> None:
    """What is lost there must be read somewhere."""
    folder = tmp_path / "run"
    folder.mkdir()
    said = _logged(folder / "log", lambda: folder.rename(tmp_path / "moved"), lambda: None, folder.mkdir)
    assert said == ["message 3", "of another"]
    assert "message 2" in (tmp_path / "moved" / "log").read_text()


def test_the_log_file_stays_small_and_takes_printed_lines_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    monkeypatch.setattr("trainerd.daemon.log_handlers.MAX_BYTES", 2000)
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


def test_a_followed_log_loses_no_line_where_it_is_rotated(
    rundir: RunDirectory, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, number = rundir.log, itertools.count()

    def write() -> None:
        with path.open("a") as file:
            file.write(f"line {next(number)}\n")

    def sleep(seconds: float) -> None:
        if len(list(rundir.path.iterdir())) > 4:
            raise KeyboardInterrupt
        write()
        path.rename(path.with_name(f"old-{seconds}-{len(list(rundir.path.iterdir()))}"))
        write()

    write()
    monkeypatch.setattr(time, "sleep", sleep)
    code, text = cli("logs", "--follow", "--logdir", str(rundir.path))
    assert code == 130 and text.split() == " ".join(f"line {each}" for each in range(9)).split()
