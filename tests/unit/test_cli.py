"""The command line: what a person gets wrong, and what it says then."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.errors import MarkupError

from tests.fake import FakeSession, FakeSnapshot
from tests.unit.conftest import Cli, FakeTime
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli import main, requests
from trainerd.cli.app import COMMANDS
from trainerd.cli.commands.training import pause, status
from trainerd.cli.display import Display, render
from trainerd.cli.options import RunOptions
from trainerd.cli.sparkline import MetricHistory
from trainerd.cli.summary import summary
from trainerd.config.parse import load
from trainerd.config.schema import Config
from trainerd.errors import NotRunningError, every_class
from trainerd.loop.outcome import Outcome
from trainerd.rundir import lock, request_files
from trainerd.rundir.lock import Holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Answer, LastCheckpoint, Phase, State
from trainerd.system.gpus import DeviceState
from trainerd.text import seconds, size


def test_help_lists_every_command(cli: Cli) -> None:
    code, text = cli("--help")
    assert code == 0
    for command in COMMANDS:
        assert command in text
        assert cli(command, "--help")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stauts"], "there is no command 'stauts'. Did you mean `status`?"),
        (["run", "--max-step", "3"], "there is no option --max-step. Did you mean --max-steps?"),
        (["start", "train.py", "--epochs", "3"], "come after `--`, as in `trainerd start train.py -- --epochs`."),
        (["run", "--max-steps", "0"], "trainerd: --max-steps: expected a whole number from 1 to "),
        (["run", "--max-steps", "abc"], "trainerd: --max-steps: expected a whole number, got 'abc'.\n"),
        (["run", "--max-steps"], "--max-steps: requires an argument."),
        (["run", "--forever=yes"], "--forever: does not take a value."),
        (["run", "--logdir", ""], "--logdir: expected a path, got ''"),
        (["history", "--smooth", "much"], "--smooth: expected a number, got 'much'."),
        (["history", "--smooth", "0.5"], "--smooth: expected a number, 1 or more, got 0.5."),
        (["events", "--since", "yesterday"], "--since: expected a duration such as 90s, 30m, 12h or 2d, got 'yester"),
        (["events", "--kind", "stat"], "expected one of start, "),
        (["events", "--kind", "stat"], "got 'stat'. Did you mean start?"),
        (["completion"], "SHELL is missing: one of bash, zsh, fish."),
        (["pin"], "STEP is missing."),
        (["pin", "best"], "STEP: expected a whole number, got 'best'."),
        (["cluster", "ru"], "no such command 'ru'"),
        (["check", "--config", ""], "expected a path, got ''"),
        (["status", ""], "expected a run or a path, got ''"),
        (["logs", "-n", "x"], "--lines: expected a whole number, got 'x'"),
        (["evaluate", "--entry", "foo"], "--entry: expected MODULE:ATTRIBUTE, such as job:job, got 'foo'"),
        (["run", "--max-steps", "9", "--forever"], "contradict each other"),
        (["install", "--user", "--system"], "contradict each other"),
        (["pin", "3", "4"], "unexpected extra argument"),
    ],
)
def test_usage_errors_exit_with_64(cli: Cli, arguments: list[str], message: str) -> None:
    code, text = cli(*arguments)
    assert code == 64 and message in text


@pytest.mark.parametrize(
    ("secs", "says"), [("3", "every 3 s (`summary.metrics_secs`)"), ("0", "so the clock adds no points")]
)
def test_history_says_when_a_point_comes_by_the_config(cli: Cli, secs: str, says: str) -> None:
    Path("trainerd.toml").write_text(f'entry = "a:b"\nlogdir = "runs/mine"\n[summary]\nmetrics_secs = {secs}\n')
    Path("runs/mine").mkdir(parents=True)
    code, text = cli("history")
    assert code == 69 and "has no curve of 'loss' yet." in text and says in text


READERS = ["status", "save", "pause", "logs", "events", "history", "checkpoints", "evaluate"]
READERS += ["diff 1 2", "pin 3", "unpin 3", "rollback 3", "set a=1", "export out", "predict out", "fork 3 new"]


@pytest.mark.parametrize("command", READERS)
def test_every_command_says_that_there_is_no_such_run(cli: Cli, command: str) -> None:
    for named in ("nosuch", "runs/nosuch"):
        kind = "run" if named == "nosuch" else "run directory"
        code, text = cli(*command.split(), "--logdir", named)
        assert code == 69 and text == f"trainerd: the {kind} {named} does not exist. `trainerd list` shows your runs.\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_what_an_option_takes(cli: Cli, command: str) -> None:
    """A range such as `1<=x<=4611686018427387904` says less than N."""
    text = cli(command, "--help")[1]
    assert "<=" not in text and "x>" not in text and "INTEGER" not in text and "FLOAT" not in text


def test_a_wrong_config_exits_with_78_and_says_all_of_it(cli: Cli) -> None:
    Path("trainerd.toml").write_text('entry = "a"\nlogdirr = "x"\n')
    for command in ("run", "start", "check", "status"):
        code, text = cli(command)
        assert code == 78
        assert "logdirr" in text and "entry" in text and "trainerd.toml has 3 mistakes" in text


@pytest.mark.parametrize("command", ["status", "save", "checkpoints", "set a=1", "rollback 3"])
def test_a_folder_without_a_run_is_no_place_to_start_one(cli: Cli, tmp_path: Path, command: str) -> None:
    """After a mistyped --logdir, the message does not propose to train there."""
    Path("other").mkdir()
    for name, says in (("missing", "does not exist"), ("other", "{} is not a run directory")):
        code, text = cli(*command.split(), "--logdir", name)
        assert code == 69 and says.format(tmp_path / name) in text and "`trainerd list` shows your runs" in text


@pytest.mark.parametrize("command", ["status", "save", "pause", "logs", "pin 3"])
def test_what_looks_at_a_run_needs_no_more_of_the_config_than_its_logdir(cli: Cli, command: str) -> None:
    """A run trains on while somebody writes into its config."""
    Path("trainerd.toml").write_text('entry = 3\nlogdir = "runs/mine"\n[checkpoints]\n')
    code, text = cli(*command.split())
    assert code != 78 and "mistake" not in text
    assert command == "pause" or "runs/mine" in text
    for wrong in ("3", '""', '"a*b"'):
        Path("trainerd.toml").write_text(f'entry = "a:b"\nlogdir = {wrong}\n')
        code, text = cli(*command.split())
        assert code == 78 and "logdir" in text


def test_a_config_that_is_not_there_exits_with_78(cli: Cli) -> None:
    assert cli("run", "--config", "none.toml")[0] == 78


def test_without_a_config_it_is_the_digits_job(cli: Cli, tmp_path: Path) -> None:
    code, text = cli("status")
    assert code == 69
    assert f"nothing has been trained in {tmp_path}/runs/digits yet" in text


@pytest.mark.parametrize(
    "typed", ["run", "start", "check", "prove", "status", "pause", "doctor", "predict -o x", "fork 1 x"]
)
def test_without_a_config_the_first_line_names_the_example(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, typed: str
) -> None:
    (tmp_path / "runs").touch()  # no run can begin there
    for broken in ("trainerd.proof.prove.Proof", "trainerd.cli.commands.jobs.check.rehearse"):
        monkeypatch.setattr(broken, None)
    monkeypatch.setitem(sys.modules, "trainerd.open_job", None)
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):
        main(typed.split())
    first, *rest = capsys.readouterr().err.splitlines()
    assert "no trainerd.toml" in first and "digits example" in first
    assert not any("digits example" in line for line in rest)
    Path("job.py").touch()
    code, text = cli(*typed.split())
    assert code == 78 and "`" in text and "init" in text and "digits" not in text


def test_a_config_is_written_for_a_job_that_is_there(cli: Cli) -> None:
    Path("job.py").write_text("mine")
    assert cli("init", ".")[0] == 0
    assert Path("job.py").read_text() == "mine" and Path("trainerd.toml").exists()


def test_commands_that_steer_say_when_nothing_runs(cli: Cli) -> None:
    assert cli("save", "--wait")[0] == 69
    assert cli("logs")[0] == 69
    code, text = cli("pause", "--wait")
    assert code == 0 and "nothing to pause" in text


def test_a_pause_of_a_folder_that_is_no_run_fails(cli: Cli) -> None:
    Path("here").mkdir()
    for named, words in (
        ("runs/typo", "the run directory runs/typo does not exist"),
        ("./here", "is not a run directory"),
    ):
        for option in (["--logdir"], []):
            code, text = cli("pause", *option, named)
            assert code == 69 and words in text


def test_a_pause_does_not_believe_what_an_earlier_process_wrote(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk is full to the last byte, the process that paused could not write its own state."""
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    State(phase=Phase.PAUSED, pid=1, step=7).write(rundir.state)
    monkeypatch.setattr(pause, "read_holder", lambda rundir: Holder(2**22 + 1, 0.0, 0.0))
    code, text = cli("pause", "--wait", "--logdir", str(rundir.path))
    assert code == 70 and "without writing its final state" in text and "paused at" not in text


def test_init_writes_a_job_and_never_replaces_one(cli: Cli) -> None:
    code, text = cli("init", "a b")
    assert code == 0 and "check --config 'a b/trainerd.toml'" in text
    Path("a b/job.py").write_text("mine")
    code, text = cli("init", "a b")
    assert code == 64 and "already" in text
    assert Path("a b/job.py").read_text() == "mine"


def test_init_writes_a_keras_script_or_the_config_of_one(cli: Cli) -> None:
    assert cli("init", "--keras", "new")[0] == 0 and "model.fit(" in Path("new/train.py").read_text()
    Path("own").mkdir()
    Path("own/train.py").write_text("mine")
    code, text = cli("init", "own", "--keras")
    assert code == 0 and "kept own/train.py" in text and Path("own/train.py").read_text() == "mine"
    assert load(Path("own/trainerd.toml")).script.adopt


def test_init_into_a_file_says_so(cli: Cli) -> None:
    Path("f").touch()
    assert cli("init", "f")[0] == 64
    assert cli("init", "f/g")[0] == 74


STATE = State(
    phase=Phase.TRAINING,
    pid=99999999,
    step=1234,
    max_steps=5000,
    metrics={"loss": 0.25},
    steps_per_sec=100.0,
    last_checkpoint=LastCheckpoint(1000, "/r/model.ckpt-1000", "schedule", 0.5, 2048, 1.0),
    memory_bytes=1 << 30,
    warnings=["look here"],
    logdir="/r",
    job="a:b",
    devices=[DeviceState("GPU:0", 32 << 30, 80 << 30, 0.97), DeviceState("CPU:1")],
)


def test_status_of_a_run_that_died(cli: Cli, rundir: RunDirectory) -> None:
    STATE.write(rundir.state)
    code, text = cli("status", "--logdir", str(rundir.path))
    assert code == 0
    assert "not running: it ended while training, without a save; the next start resumes from step 1000" in text
    assert "1,234 of 5,000" in text and "look here" in text and "GPU:0" not in text


def test_status_of_a_run_that_runs(cli: Cli, odd_rundir: RunDirectory) -> None:
    with lock.acquire(odd_rundir) as held:
        holder = held.name_holder(os.getpid())
        STATE.write(odd_rundir.state)
        code, text = cli("status", "--logdir", str(odd_rundir.path))
        assert code == 0 and "left" in text and "38 s" in text and "1.0 GiB" in text
        assert "\ndevice       GPU:0: 32.0 GiB of 80.0 GiB, 97 % busy\ndevice       CPU:1\n" in text
        code, text = cli("status", "--json", "--logdir", str(odd_rundir.path))
        found = json.loads(text)
        assert found["running"] is True
        assert found["devices"][0]["utilization"] == 0.97 and found["devices"][1]["memory_bytes"] is None
    assert holder.is_alive()


def test_status_says_that_what_it_shows_is_old_and_why(
    cli: Cli, rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        replace(STATE, at=time.time() - 30).write(rundir.state)
        text = cli("status", "--logdir", str(rundir.path))[1]
        assert "as of" not in text and "no space" not in text
        replace(STATE, at=time.time() - 300).write(rundir.state)
        assert "as of" in cli("status", "--logdir", str(rundir.path))[1]
        monkeypatch.setattr(status, "free_bytes", lambda path: 4096)
        text = cli("status", "--logdir", str(rundir.path))[1]
        assert "look here" in text and f"no space is left in {rundir.path}" in text
        shown = json.loads(cli("status", "--json", "--logdir", str(rundir.path))[1])
        assert "no space is left" in shown["warnings"][-1]


def test_status_json_has_the_fields_that_are_promised(cli: Cli, rundir: RunDirectory) -> None:
    STATE.write(rundir.state)
    found = json.loads(cli("status", "--json", "--logdir", str(rundir.path))[1])
    promised = (
        "phase pid create_time step max_steps metrics steps_per_sec last_checkpoint memory_bytes warnings error "
        "logdir job running"
    )
    assert set(promised.split()) <= set(found)


def test_status_names_the_run_directory_where_it_is_now(cli: Cli, rundir: RunDirectory) -> None:
    STATE.write(rundir.state)
    assert f" {rundir.path}\n" in cli("status", "--logdir", str(rundir.path))[1]
    found = json.loads(cli("status", "--json", "--logdir", str(rundir.path))[1])
    assert found["logdir"] == str(rundir.path)
    assert found["last_checkpoint"]["path"] == str(rundir.path / "model.ckpt-1000")
    assert set("step path reason seconds bytes at".split()) == set(found["last_checkpoint"])
    in_the_chiefs = LastCheckpoint(1000, "/r/model.ckpt-1000", "schedule", 0.5, 2048, 1.0)
    replace(STATE, logdir="/r/workers/1", last_checkpoint=in_the_chiefs).write(rundir.state)
    found = json.loads(cli("status", "--json", "--logdir", str(rundir.path))[1])
    assert found["last_checkpoint"]["path"] == "/r/model.ckpt-1000"


def test_a_save_is_waited_for(rundir: RunDirectory, clock: FakeTime) -> None:
    with lock.acquire(rundir) as held:
        holder = held.name_holder(os.getpid())

        def serve() -> None:
            request = rundir.save.read_text().split()
            rundir.save.unlink()
            State(answers=[Answer(request, 7, None)]).write(rundir.state)

        clock.on_sleep = [lambda: None, serve]
        answer = requests.ask_for_save(rundir, holder, sleep=clock.sleep)
    assert answer.step == 7


def test_an_answer_is_found_behind_later_ones(rundir: RunDirectory, clock: FakeTime) -> None:
    with lock.acquire(rundir) as held:
        holder = held.name_holder(os.getpid())

        def serve() -> None:
            ids = rundir.save.read_text().split()
            rundir.save.unlink()
            State(answers=[Answer(ids, 7, None), Answer(["another"], 8, None)]).write(rundir.state)

        clock.on_sleep = [serve]
        answer = requests.ask_for_save(rundir, holder, sleep=clock.sleep)
    assert answer.step == 7 and not rundir.save.exists()


def test_a_save_that_was_lost_is_asked_for_again_with_its_id(rundir: RunDirectory, clock: FakeTime) -> None:
    with lock.acquire(rundir) as held:
        holder = held.name_holder(os.getpid())

        asked: list[str] = []

        def lose() -> None:
            asked.extend(rundir.save.read_text().split())
            rundir.save.unlink()
            State(answers=[Answer(["another"], 7, None)]).write(rundir.state)

        def serve() -> None:
            assert rundir.save.read_text().split() == asked
            State(answers=[Answer(asked, 9, None)]).write(rundir.state)

        clock.on_sleep = [lose, *[lambda: None] * 110, serve]
        assert requests.ask_for_save(rundir, holder, sleep=clock.sleep).step == 9


def test_a_save_whose_process_dies_says_so(rundir: RunDirectory) -> None:
    with pytest.raises(NotRunningError, match="ended before it saved"):
        requests.ask_for_save(rundir, Holder(99999999, 0.0, 0.0), sleep=lambda s: None)


def test_a_run_directory_that_cannot_be_made_exits_with_74(cli: Cli) -> None:
    Path("file").touch()
    code, text = cli("run", "--logdir", "file/run")
    assert code == 74 and "cannot make the run directory" in text and "another `logdir`" in text


@pytest.mark.parametrize("command", ["run", "status", "save", "pause", "pin 3", "logs"])
def test_a_file_is_no_run_directory(cli: Cli, command: str) -> None:
    Path("file").touch()
    code, text = cli(*command.split(), "--logdir", "file")
    assert code == 64 and "--logdir: expected a directory, got the file 'file'." in text


def test_who_asks_for_a_save_where_nothing_trains_is_shown_what_starts_it(cli: Cli) -> None:
    Path("elsewhere").mkdir()
    Path("elsewhere/trainerd.log").touch()
    code, text = cli("save", "--logdir", "elsewhere")
    assert code == 69 and re.search(r"nothing trains in .*elsewhere\. `.* start --logdir elsewhere` starts it", text)


def test_a_run_directory_in_use_exits_with_75(cli: Cli, rundir: RunDirectory) -> None:
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        for command in ("run", "start"):
            code, text = cli(command, "--logdir", str(rundir.path))
            assert code == 75 and f"process {os.getpid()} trains in" in text


def test_errors_of_what_was_given_are_value_errors() -> None:
    """Programs written for TensorFlow and Keras catch those."""
    found = {cls.__name__ for cls in every_class() if issubclass(cls, ValueError)}
    assert {"UsageError", "ConfigError", "DataError"} <= found and "JobError" not in found
    with pytest.raises(ValueError, match="logdir"):
        RunDirectory.of("gs://bucket/run")


def test_exit_codes_are_those_of_the_design() -> None:
    codes = {cls.__name__: cls.exit_code for cls in every_class() if cls.__module__ == "trainerd.errors"}
    assert codes == {
        "TrainerdError": 70,
        "UsageError": 64,
        "DataError": 65,
        "EntryError": 69,
        "BackendError": 69,
        "NotRunningError": 69,
        "JobError": 70,
        "RepeatedFailureError": 65,
        "ProofError": 70,
        "ReleaseError": 70,
        "DiagnosisError": 70,
        "StorageError": 74,
        "CopyError": 74,
        "InUseError": 75,
        "PeerLostError": 76,
        "PeerFailedError": 70,
        "ConfigError": 78,
    }


def test_the_display_shows_what_a_person_watches() -> None:
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(render(STATE, now=61.0))
    text = console.export_text()
    console.file.close()
    for part in ("step 1,234 of 5,000", "loss", "0.25", "100 steps/s", "38 s left", "step 1,000, 60 s ago", "1.0 GiB"):
        assert part in text
    assert "look here" in text and "GPU:0: 32.0 GiB of 80.0 GiB, 97 % busy" in text


def test_a_sparkline_shows_the_last_minutes_of_a_metric() -> None:
    history = MetricHistory()
    assert history.sparkline("loss", 0.0) == ""
    for now in range(1000):
        history.add(float(now), {"loss": 1000.0 - now, "acc": 0.5, "bad": math.nan})
    falling = history.sparkline("loss", 1000.0)
    assert (
        len(falling) == 30 and falling[0] == "█" and falling[-1] == "▁" and sorted(falling, reverse=True) == [*falling]
    )
    assert history.sparkline("acc", 1000.0) == "▁" * 30 and history.sparkline("bad", 1000.0) == ""
    assert history.sparkline("loss", 2000.0) == "", "it is too old"
    young = MetricHistory()
    for now in range(0, 12, 3):
        young.add(float(now), {"loss": float(now)})
    assert young.sparkline("loss", 12.0) == "▁▃▅█"


def test_keys_choose_what_is_shown_and_ask(rundir: RunDirectory) -> None:
    rundir.create()
    console = Console(width=120, record=True, file=io.StringIO())
    with Display(console, rundir) as display:
        display.observe(replace(STATE, metrics={"loss": 0.25, "accuracy": 0.5}))

        def shown() -> str:
            console.print(display.render())
            return console.export_text()

        assert "accuracy" in shown() and "s saves" in shown()
        display.press("m")
        assert "loss" in (text := shown()) and "accuracy" not in text
        display.press("m")
        assert "accuracy" in (text := shown()) and "loss" not in text
        display.press("m")
        assert "accuracy" in (text := shown()) and "loss" in text
        display.press("s")
        assert request_files.is_save_asked(rundir) and "asked for a checkpoint" in shown()
        display.press("p")
        assert not request_files.is_pause_asked(rundir) and "press p again" in shown()
        display.press("x")
        display.press("p")
        assert request_files.is_pause_asked(rundir)
        display.press("l")
        for level, said in ((logging.INFO, "a record"), (logging.WARNING, "a warning")):
            display.handler.handle(logging.makeLogRecord({"msg": said, "levelno": level, "levelname": ""}))
        assert "a warning" in (text := shown()) and "a record" not in text and "log is hidden" in text
        display.press("l")
        assert "a record" in shown()


@pytest.mark.parametrize(
    ("phase", "parts"),
    [
        (Phase.PAUSED, ["resume at the next step", "tensorboard"]),
        (Phase.FINISHED, ["--max-steps 2468", "start --forever", "train for longer"]),
    ],
)
def test_the_summary_says_what_to_do_next(phase: Phase, parts: list[str]) -> None:
    config, run = Config(entry="a:b", logdir="r"), RunOptions(Path("c d.toml"))
    text = "\n".join(summary(Outcome(phase, "why"), STATE, config, run))
    assert "--config 'c d.toml'" in text and "why." in text
    for part in parts:
        assert part in text
    text = "\n".join(summary(Outcome(phase, "why"), STATE, config, RunOptions(), is_of_several=True))
    assert "tensorboard" in text and " run" not in text and " start" not in text, "a worker would train alone"


def test_where_the_job_ended_it_no_option_is_named_to_train_for_longer() -> None:
    outcome = Outcome(Phase.FINISHED, "5 epochs are done", by_job=True)
    text = "\n".join(summary(outcome, STATE, Config(entry="a:b", logdir="r"), RunOptions()))
    assert "tensorboard" in text and "--max-steps" not in text and "--forever" not in text


@pytest.mark.parametrize(("max_steps", "option"), [(None, "--forever"), (5000, "--max-steps 5000")])
def test_what_is_past_the_configs_end_resumes_only_if_asked(max_steps: int | None, option: str) -> None:
    config, state = Config(entry="a:b", logdir="r", max_steps=1000), replace(STATE, max_steps=max_steps)
    text = "\n".join(summary(Outcome(Phase.PAUSED, "why"), state, config, RunOptions()))
    assert f"run {option}" in text and f"start {option}" in text


def test_a_metrics_name_is_shown_as_it_is() -> None:
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(render(replace(STATE, metrics={"acc[/k]": 0.5, "acc[top]": 0.25, "two\nlines": 1.0}), now=61.0))
    text = console.export_text()
    console.file.close()
    assert "acc[/k]" in text and "acc[top]" in text and "two lines" in text


def test_what_cannot_be_shown_is_no_error_of_who_logs(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(Console):
        def print(self, *objects: object, **options: object) -> None:
            raise MarkupError("no such tag")

    with Display(Broken(stderr=True)) as display:
        display.handler.handle(logging.makeLogRecord({"msg": "saved", "levelno": logging.INFO}))
    assert "no such tag" in capsys.readouterr().err


def test_what_is_over_has_no_rate_and_nothing_left() -> None:
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(render(replace(STATE, phase=Phase.FINISHED), now=61.0))
    text = console.export_text() + replace(STATE, phase=Phase.FINISHED, step=6000).line()
    console.file.close()
    assert "left" not in text and "steps/s" not in text and "step 6000 of" not in text


def test_without_a_command_the_help_is_shown(cli: Cli) -> None:
    code, text = cli()
    assert code == 64 and text.startswith("Usage:") and "trainerd:" not in text


def test_a_run_that_has_saved_nothing_says_how_to_start_it(cli: Cli) -> None:
    Path("no where").mkdir()
    Path("no where/trainerd.log").touch()
    code, text = cli("status", "--logdir", "no where")
    assert code == 69 and "run --logdir 'no where'` starts it" in text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0.25, "0.2 s"), (75, "75 s"), (600, "10 min"), (3 * 3600 + 300, "3 h 05 min"), (4e5, "4 d 15 h")],
)
def test_spans_of_time(count: float, text: str) -> None:
    assert seconds(count) == text


def test_a_checkpoint_is_pinned_and_unpinned(cli: Cli, rundir: RunDirectory) -> None:
    for step in (1, 2, 3):
        CheckpointStore(rundir).publish(FakeSnapshot(step, 2.0 * step), About("test"))
    where = ("--logdir", str(rundir.path))
    assert f"pinned step 2: {rundir.prefix(2)}\n" in cli("pin", "2", *where)[1]
    assert cli("pin", "2", *where)[0] == 0, "a pin that is there is no mistake"
    CheckpointStore(rundir, policy=Policy(1)).publish(FakeSnapshot(4, 8.0), About("test"))
    assert rundir.steps() == [4, 2]
    code, text = cli("pin", "3", *where)
    assert code == 64 and "has no checkpoint of step 3. The steps that have one: 4, 2." in text
    assert rundir.pinned() == {2}
    code, text = cli("unpin", "4", *where)
    assert code == 64 and "step 4 is not pinned" in text and "Pinned: 2." in text
    assert "unpinned step 2\n" in cli("unpin", "2", *where)[1] and not rundir.pinned()


@pytest.mark.parametrize(("reason", "phase"), [("finish", "finished"), ("schedule", "paused")])
def test_without_a_state_the_newest_checkpoint_reports(cli: Cli, rundir: RunDirectory, reason: str, phase: str) -> None:
    session = FakeSession()
    session.run_until(7)
    CheckpointStore(rundir).publish(session.snapshot(), About(reason))
    code, text = cli("status", "--logdir", str(rundir.path), "--json")
    state = json.loads(text)
    assert code == 0 and (state["phase"], state["step"], state["running"]) == (phase, 7, False)
    assert state["last_checkpoint"]["step"] == 7 and state["last_checkpoint"]["reason"] == reason
    assert cli("status", "--logdir", str(rundir.path))[0] == 0


def test_a_damaged_checkpoint_and_none_at_all_are_not_pinned(cli: Cli, rundir: RunDirectory) -> None:
    where = ("--logdir", str(rundir.path))
    assert "There is none yet." in cli("pin", "1", *where)[1]
    rundir.manifest(1).write_text("damaged")
    code, text = cli("pin", "1", *where)
    assert code == 64 and "is damaged" in text and not rundir.pinned()


def test_many_checkpoints_are_reported_in_a_line_that_can_be_read(cli: Cli, rundir: RunDirectory) -> None:
    for step in range(100):
        rundir.manifest(step).write_text("{}")
    assert "80 and 80 older ones." in cli("pin", "1000", "--logdir", str(rundir.path))[1]


def test_a_command_in_a_folder_that_was_removed_says_so(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for command in ("status", "check", "checkpoints"):
        code, text = cli(command)
        assert (code, text) == (64, "trainerd: the current folder was removed. Go to another one with `cd`.\n")


def test_commands_find_checkpoints_that_a_program_names_otherwise(cli: Cli, tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path / "run", "translate.ckpt")
    rundir.create()
    for step in (100, 200):
        CheckpointStore(rundir).publish(FakeSnapshot(step, 1.0), About("schedule"))
    where = ("--logdir", "run")
    assert "200" in cli("checkpoints", *where)[1] and cli("pin", "100", *where)[0] == 0 and rundir.pinned() == {100}
    assert cli("rollback", "100", *where)[0] == 0 and rundir.steps() == [100]
    rundir.checkpoint_state.write_text('model_checkpoint_path: "other-7"\n')  # without a manifest
    assert cli("checkpoints", *where)[0] == 69
