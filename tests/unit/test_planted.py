"""What a job may plant in its run directory, for root or another user to fall into: links, FIFOs, devices, text."""

from __future__ import annotations

import ast
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import trainerd.cli
from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli import as_owner
from trainerd.cli.app import COMMANDS
from trainerd.config import parse as configs
from trainerd.errors import NotRunningError, StorageError
from trainerd.rundir import lock, request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State
from trainerd.system.machine import Machine
from trainerd.system.regular_files import read_regular
from trainerd.text import printable

OUTSIDE = "precious"
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r"


def a_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / OUTSIDE)


def a_dangling_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "nologin")


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_huge_file(path: Path) -> None:
    path.touch()
    os.truncate(path, 30 << 30)


def a_second_name(path: Path) -> None:
    os.link(path.parent.parent / OUTSIDE, path)


@pytest.fixture
def held(rundir: RunDirectory) -> Iterator[RunDirectory]:
    """A run that this process trains, with a checkpoint of step 5."""
    (rundir.path.parent / OUTSIDE).write_text("of another")
    CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("test"))
    with lock.acquire(rundir) as holding:
        holding.name_holder(os.getpid())
        yield rundir


def untouched(rundir: RunDirectory) -> bool:
    there = rundir.path.parent
    return (there / OUTSIDE).read_text() == "of another" and not (there / "nologin").exists()


READ: list[Callable[[Path], None]] = [a_link, a_fifo, a_device, a_huge_file]
WRITTEN: list[Callable[[Path], None]] = [a_link, a_dangling_link, a_fifo, a_device, a_second_name]


@pytest.mark.parametrize("plant", WRITTEN)
@pytest.mark.parametrize("command", ["pin", "pause", "save"])
def test_no_command_writes_into_what_was_planted(
    held: RunDirectory, cli: Cli, command: str, plant: Callable[[Path], None]
) -> None:
    files = {"pin": held.pin(5), "pause": held.pause, "save": held.save}
    plant(files[command])
    if plant is a_second_name:  # in a folder of one's own it is one's own business, as in a backup
        if os.geteuid() != 0:
            return
        os.chown(held.path, 12345, 12345)
    code, text = cli(command, *(["5"] if command == "pin" else []), "--logdir", str(held.path))
    assert code == 74 and str(files[command]) in text and "move it" in text
    assert untouched(held)


@pytest.mark.parametrize("plant", READ)
@pytest.mark.parametrize("name", ["state.json", "trainerd.log", "lock", "model.ckpt-5.json", "checkpoint"])
def test_no_command_reads_what_was_planted_or_waits_for_it(
    held: RunDirectory, cli: Cli, name: str, plant: Callable[[Path], None]
) -> None:
    path = held.path / name
    path.unlink(missing_ok=True)
    plant(path)
    begun = time.monotonic()
    for command in (["status"], ["status", "--json"], ["logs"], ["pin", "5"], ["unpin", "5"], ["pause"], ["save"]):
        code, text = cli(*command, "--logdir", str(held.path))
        assert code in (0, 64, 69, 74), text
        assert "of another" not in text
        if (name, command[0]) in {("state.json", "status"), ("lock", "pause"), ("trainerd.log", "logs")} and (
            plant is not a_huge_file or name != "trainerd.log"  # of which the end is shown
        ):
            assert code == 74 and "move it" in text, text
    assert time.monotonic() - begun < 5 and untouched(held)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("given", ["", "sweep.toml"])
def test_a_sweep_in_another_users_folder_is_not_trusted(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "sweep.toml").write_text('base = "a.toml"\nset = ["params.a=1"]\n')
    os.chown(tmp_path / "run" / given, 4321, 4321)
    code, text = cli("export", "run/", "best", "out")
    assert code == 64 and "run belongs to uid 4321" in text, text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_in_a_folder_of_ones_own_was_planted(rundir: RunDirectory) -> None:
    path = rundir.path / "state.json"
    path.write_text("{}")
    os.chown(path, 12345, 12345)
    with pytest.raises(PermissionError, match="belongs to uid 12345"):
        read_regular(path)
    rundir.path.chmod(0o775)  # others may put files there: so it is meant
    assert read_regular(path) == b"{}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_has_tensorboard_open_no_file_of_another_user(
    rundir: RunDirectory, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would serve what a link leads to, to everybody on this machine."""
    served: list[list[str]] = []

    def serve(arguments: list[str]) -> int:
        served.append(arguments)
        return 0

    monkeypatch.setattr("trainerd.cli.commands.training.tensorboard.serve", serve)
    os.chown(rundir.path, 12345, 12345)
    code, text = cli("tensorboard", "--port", "0", "--logdir", str(rundir.path))
    assert code == 64 and "as that user" in text and not served
    os.chown(rundir.path, 0, 0)
    (rundir.path / "bob").mkdir()
    os.chown(rundir.path / "bob", 12345, 12345)
    (rundir.path / "open").mkdir()
    (rundir.path / "open").chmod(0o1777)
    for folder in (rundir.path, rundir.path.parent, rundir.path / "bob" / "later", rundir.path / "open" / "later"):
        code, text = cli("tensorboard", "--port", "0", "--logdir", str(folder))
        assert code == 64 and not served
    (rundir.path / "bob").rmdir()
    code, text = cli("tensorboard", "--port", "0", "--logdir", str(rundir.path))
    assert code == 64 and f"{rundir.path / 'open'} can be written by other users" in text
    (rundir.path / "open").rmdir()
    other = rundir.path.parent / "other"
    (other / "bob").mkdir(parents=True)
    os.chown(other / "bob", 12345, 12345)
    (other / "link").symlink_to(rundir.path.parent)
    link = rundir.path / "link"
    for target in (other, other / "bob", other / "link", "/tmp/not-there", "../other/bob/not-there"):
        link.symlink_to(target)
        code, text = cli("tensorboard", "--port", "0", "--logdir", str(rundir.path))
        assert code == 64 and ("belongs to" in text or "can be written" in text) and not served
        link.unlink()
    (other / "bob").rmdir()
    link.symlink_to("../other/link")  # to what has this link in it
    assert cli("tensorboard", "--port", "0", "--logdir", str(rundir.path))[0] == 0 and served
    served.clear()
    os.lchown(link, 12345, 12345)
    code, text = cli("tensorboard", "--port", "0", "--logdir", str(rundir.path))
    assert code == 64 and "belongs to" in text and not served
    link.unlink()
    (rundir.path / "file").touch(0o666)
    (rundir.path / "file").chmod(0o666)
    code, text = cli("tensorboard", "--port", "0", "--logdir", str(rundir.path))
    assert code == 64 and "file can be written by other users" in text and not served
    os.chown(rundir.path / "file", 12345, 12345)
    code, text = cli("tensorboard", "--port", "0", "--logdir", str(rundir.path))
    assert code == 64 and "file belongs to uid 12345" in text and not served
    (rundir.path / "file").unlink()
    rundir.path.chmod(0o777)
    for folder in (rundir.path, rundir.path / "later"):
        code, text = cli("tensorboard", "--port", "0", "--logdir", str(folder))
        assert code == 64 and "can be written by other users" in text and not served
    rundir.path.chmod(0o755)
    assert cli("tensorboard", "--port", "0", "--logdir", str(rundir.path / "later"))[0] == 0 and served
    assert cli("tensorboard", "--port", "0", "--logdir", str(rundir.path))[0] == 0 and served


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_link_of_another_user_to_a_run_of_roots_is_no_run_of_roots(rundir: RunDirectory) -> None:
    """That user may exchange it for another folder after it was looked at."""
    link = rundir.path.parent / "link"
    link.symlink_to(rundir.path)
    as_owner.require_owner(RunDirectory(link))
    os.chown(link, 12345, 12345, follow_symlinks=False)
    with pytest.raises(StorageError, match="a symbolic link that uid 12345 has made"):
        as_owner.require_owner(RunDirectory(link))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("command", ["evaluate", "export", "predict", "doctor"])
def test_root_runs_no_job_of_another_users_config_on_a_run_of_its_own(
    rundir: RunDirectory, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "job.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    (project / "trainerd.toml").write_text(f'entry = "job:job"\nlogdir = "{rundir.path}"\n')
    monkeypatch.chdir(project)
    CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("test"))
    more = {"export": ["out"], "predict": ["-o", "p.csv"], "doctor": ["--python", sys.executable]}
    for theirs in (project, project / "trainerd.toml"):
        os.chown(theirs, 12345, 12345)
        code, text = cli(command, *more.get(command, []))
        assert code == 64 and f"{theirs} belongs to uid 12345, and this command runs the job's code" in text, text
        os.chown(theirs, 0, 0)
    assert not (project / "ran").exists()
    os.chown(project, 12345, 12345)
    State(Phase.PAUSED).write(rundir.state)  # root's trainer does so: in a container the project is often mounted
    as_owner.require_own_job(rundir, configs.load(project / "trainerd.toml"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_request_does_not_open_a_file_that_is_there_to_others(rundir: RunDirectory) -> None:
    secret = rundir.path / "save"
    secret.write_text("secret\n")
    secret.chmod(0o600)
    os.chown(rundir.path, 12345, 12345)
    request_files.append(secret, "id\n")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    request_files.append(rundir.pause, "id\n")
    assert stat.S_IMODE(rundir.pause.stat().st_mode) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="another user need not ask")
def test_a_run_directory_that_is_missing_is_not_roots(rundir: RunDirectory) -> None:
    """Another user may move theirs away for the moment in which root looks."""
    rundir.path.rmdir()
    with pytest.raises(NotRunningError, match=r"the run directory .* does not exist"):
        as_owner.require_owner(rundir)


def test_doctor_compares_another_python_before_the_first_start(cli: Cli) -> None:
    code, text = cli("doctor", "--logdir", "missing", "--python", sys.executable)
    assert code == 0 and "this run has none yet" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_link_to_a_run_directory_is_followed_where_its_maker_is_trusted(rundir: RunDirectory, cli: Cli) -> None:
    link = rundir.path.parent / "link"
    link.symlink_to(rundir.path)
    CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("test"))
    assert cli("pin", "5", "--logdir", str(link))[0] == 0
    os.lchown(link, 12345, 12345)
    code, text = cli("unpin", "5", "--logdir", str(link))
    assert code == 64 and "symbolic link that uid 12345 has made" in text


def test_a_link_in_place_of_a_worker_leads_to_no_other_run(rundir: RunDirectory, tmp_path: Path) -> None:
    other = RunDirectory(tmp_path / "other")
    other.create()
    for rank in (1, 2):
        rundir.worker(rank).create()
    (rundir.path / "workers" / "3").symlink_to(other.path)
    (rundir.path / "workers" / "4").touch()
    assert rundir.workers() == [rundir.worker(1), rundir.worker(2)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    "command",
    [
        ["evaluate"],
        ["export", "out"],
        ["predict", "--output", "out.csv"],
        ["doctor", "--python", "python3"],
        ["diff", "5", "5"],
    ],
)
def test_root_runs_no_job_of_another_user(
    rundir: RunDirectory, cli: Cli, command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("test"))
    os.chown(rundir.path, 12345, 12345)
    code, text = cli(*command, "--logdir", str(rundir.path))
    assert code == 64 and "uid 12345" in text and "sudo -u '#12345'" in text
    state = tmp_path / "lib"
    (state / "private").mkdir(parents=True)
    rundir.path.rename(state / "private" / "trainerd-digits")
    (state / "trainerd-digits").symlink_to("private/trainerd-digits")
    monkeypatch.setattr(as_owner, "MACHINE", Machine(state=state))
    code, text = cli(*command, "--logdir", str(state / "trainerd-digits"))
    assert code == 64 and "-p DynamicUser=yes -p User=trainerd-digits -p StateDirectory=trainerd-digits" in text


def test_no_text_of_a_job_looks_like_a_line_of_trainerd(held: RunDirectory, cli: Cli) -> None:
    faked = "real\nerror    all is lost"
    state = State(
        Phase.FAILED, os.getpid(), metrics={faked: 1.0}, warnings=[faked], error=faked, logdir=faked, job=faked
    )
    state.write(held.state)
    CheckpointStore(held).publish(FakeSnapshot(6, 10.0), About(faked))
    for command in ("status", "checkpoints"):
        code, text = cli(command, "--logdir", str(held.path))
        assert code == 0 and "\nerror    all" not in text and "real error" in text


def test_no_command_shows_control_characters(held: RunDirectory, cli: Cli) -> None:
    state = State(
        phase=Phase.TRAINING,
        pid=os.getpid(),
        step=5,
        metrics={HOSTILE: 1.0},
        warnings=[HOSTILE],
        error=HOSTILE,
        logdir=HOSTILE,
        job=HOSTILE,
    )
    state.write(held.state)
    held.log.write_text(f"a line\n{HOSTILE}\nthe end\n")
    for command in (["status"], ["status", "--json"], ["logs"], ["pause"]):
        _, text = cli(*command, "--logdir", str(held.path))
        assert printable(text) == text
    _, text = cli("logs", "--logdir", str(held.path))
    assert text.startswith("a line\n\\x1b]0;owned\\x07") and text.endswith("the end\n")


@pytest.mark.parametrize("bad", ['"\\u001b"', "1e999", "[[", "-1", "{}", "[" * 100_000, "9" * 4000])
def test_a_state_of_other_types_is_no_state(held: RunDirectory, cli: Cli, bad: str) -> None:
    text = json.dumps(State(phase=Phase.TRAINING).to_json())
    for key in ("step", "at", "metrics", "warnings", "last_checkpoint", "steps_per_sec", "logdir", "pid"):
        before = json.dumps(json.loads(text)[key])
        held.state.write_text(text.replace(f'"{key}": {before}', f'"{key}": {bad}', 1))
        code, said = cli("status", "--logdir", str(held.path))
        assert code == 0 and printable(said) == said


def test_what_can_be_shown_is_shown_as_it_is() -> None:
    for text in ("plain", "ünïcödé 日本 🙂", "a\tb\nc", "a\xa0b"):
        assert printable(text) == text
    assert printable("\x1b[1mbold\x1b[0m, \x1b[38;5;9mred\x1b[m") == "bold, red"
    assert printable("\x1b\x7f\x85\u2028\ud800\U000e0001") == "\\x1b\\x7f\\x85\\u2028\\ud800\\U000e0001"


def test_every_command_prints_through_one_function() -> None:
    """`say` is the only one that prints."""
    folder = Path(trainerd.cli.__file__).parent
    files = [path for path in folder.rglob("*.py") if path.name != "say.py"]
    assert len(files) > len(COMMANDS)
    for path in files:
        calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not {"click.echo", "print", "click.secho", "sys.stdout.write"} & set(calls), path
