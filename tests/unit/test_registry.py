"""The runs of a user: what is remembered, by which names it is found, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.fake import FakeSnapshot
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli import options
from trainerd.cli.app import COMMANDS, cli
from trainerd.cli.commands.runs.list import table
from trainerd.cli.options import RunOptions
from trainerd.errors import NotRunningError, UsageError
from trainerd.rundir import names, registry, runs
from trainerd.rundir.claim import claimed
from trainerd.rundir.names import RunIdentity
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State
from trainerd.system import machine
from trainerd.system.machine import Machine

PARTS = st.lists(st.sampled_from(["a", "b", "digits"]), min_size=1, max_size=4)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own, on a machine without services."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(machine, "MACHINE", Machine(state=tmp_path / "services"))
    return tmp_path / "state"


def run_in(path: Path, **fields: object) -> RunDirectory:
    """A run that has started there, and was paused."""
    rundir = RunDirectory(path)
    with claimed(rundir, "jobs:job") as reporter:
        reporter.update(phase=Phase.PAUSED, **fields)
    return rundir


def said(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_run_is_known_from_its_start_until_its_folder_is_gone(tmp_path: Path) -> None:
    run = run_in(tmp_path / "runs" / "one")
    worker = run_in(tmp_path / "elsewhere").worker(1)
    run_in(worker.path)
    assert [each.path for each in registry.known()] == [tmp_path / "elsewhere", run.path]
    run.path.rename(tmp_path / "runs" / "other")
    assert [each.path for each in registry.known()] == [tmp_path / "elsewhere"]


def test_a_folder_on_a_disk_that_is_late_is_known_later(tmp_path: Path) -> None:
    run_in(tmp_path / "disk" / "runs" / "one")
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    assert registry.known() == []
    (tmp_path / "unmounted").rename(tmp_path / "disk")
    assert len(registry.known()) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"logdir": 3, "config": null}', "null"])
def test_a_damaged_file_is_passed_over(state_home: Path, tmp_path: Path, content: str) -> None:
    run_in(tmp_path / "one")
    (state_home / "trainerd" / "runs" / "0123456789abcdef.json").write_text(content)
    assert [each.path for each in registry.known()] == [tmp_path / "one"]


def test_a_run_trains_where_nothing_can_be_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    run_in(tmp_path / "one")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the specification has it ignored
    monkeypatch.setenv("HOME", str(tmp_path))
    run_in(tmp_path / "one")
    assert (tmp_path / ".local" / "state" / "trainerd" / "runs").is_dir()


@given(st.sets(PARTS.map(lambda parts: Path("/", *parts)), min_size=1, max_size=8))
def test_each_run_is_found_by_its_name(paths: set[Path]) -> None:
    runs = [RunIdentity(path) for path in paths]
    found = names.names(runs)
    assert len(set(found.values())) == len(paths)
    for path, name in found.items():
        assert name.startswith("/") or names.find(name, runs) == path


def test_a_name_of_several_runs_is_refused() -> None:
    runs = [RunIdentity(Path("/x/a/digits")), RunIdentity(Path("/x/b/digits"))]
    with pytest.raises(UsageError, match=r"2 runs\. Say which: digits@a, digits@b"):
        names.find("digits", runs)
    assert names.find("igits", runs) is None


def test_names_are_short_and_distinct() -> None:
    runs = [
        RunIdentity(Path("/home/me/mnist/runs/first"), job="train.py"),
        RunIdentity(Path("/home/me/cifar/runs/first"), job="train.py"),
        RunIdentity(Path("/home/me/cifar/runs/second"), "baseline"),
        RunIdentity(Path("/home/me/mnist/runs/second"), "baseline"),
        RunIdentity(Path("/home/me/third"), "a/b"),
        RunIdentity(Path("/a/b/run"), job="lib.models:big"),
        RunIdentity(Path("/b/a/run"), job="eval.py"),
        RunIdentity(Path("/a/b/same")),
        RunIdentity(Path("/b/a/same")),
    ]
    assert [*names.names(runs).values()] == [
        *("first@mnist", "first@cifar", "baseline@cifar", "baseline@mnist"),
        *("third", "run@models", "run@eval", "/a/b/same", "/b/a/same"),
    ]
    assert names.find("baseline@mnist", runs) == names.find("mnist/runs/second", runs) == runs[3].path
    assert names.is_called(runs[3], "baseline") and names.is_called(runs[3], "second")


def test_a_shown_name_wins_over_the_folder_of_another_run() -> None:
    runs = [RunIdentity(Path("/x/a"), "digits"), RunIdentity(Path("/x/digits"), "other")]
    assert names.find("digits", runs) == Path("/x/a") and names.find("other", runs) == Path("/x/digits")


def test_a_run_is_found_by_the_name_of_its_config(tmp_path: Path) -> None:
    run_in(tmp_path / "runs" / "mine", step=12, name="baseline", tags=["small", "new"], notes="one\ntwo")
    assert "baseline" in said("list") and "small, new" in said("list")
    for typed in ("baseline", "mine"):
        shown = said("status", typed)
        assert "baseline" in shown and "small, new" in shown and "one two" in shown
    [found] = json.loads(said("list", "--json"))
    assert (found["name"], found["tags"], found["notes"]) == ("baseline", ["small", "new"], "one\ntwo")
    with claimed(RunDirectory(tmp_path / "runs" / "mine"), "jobs:job") as reporter:
        assert reporter.state.name == "baseline", "the start before the config is read keeps it"


def test_a_list_is_filtered_and_sorted(tmp_path: Path) -> None:
    run_in(tmp_path / "a", step=5, metrics={"loss": 0.25, "accuracy": 0.5}, tags=["x", "y"])
    run_in(tmp_path / "b", step=12, metrics={"loss": 0.5}, tags=["x"])
    paused = run_in(tmp_path / "c", step=7, metrics={"loss": 0.125, "accuracy": 0.75})
    paused.lock.unlink()  # it names this process

    def shown(*typed: str) -> list[str]:
        return [each["name"] for each in json.loads(said("list", "--json", *typed))]

    assert shown() == ["a", "b", "c"] and shown("--running") == ["a", "b"]
    assert shown("--tag", "x") == ["a", "b"] and shown("--tag", "x", "--tag", "y") == ["a"]
    assert shown("--sort", "step") == ["a", "c", "b"] and shown("--sort", "-step") == ["b", "c", "a"]
    assert shown("--sort", "accuracy") == ["a", "c", "b"] and shown("--sort", "-accuracy") == ["c", "a", "b"]
    assert shown("--sort", "-run") == ["c", "b", "a"] and shown("--sort", "phase") == ["a", "b", "c"]
    for given_options, message in (
        (["--tag", "xx"], "no run has the tag 'xx'. Did you mean x?"),
        (["--sort", "los"], "--sort: expected a column or a metric, got 'los'. Did you mean loss?"),
        (["--tag", "y", "--tag", "x", "--sort", "q"], "They are run, phase, step, loss, rate, left, saved, accuracy."),
    ):
        assert message in str(CliRunner().invoke(cli, ["list", *given_options]).exception)
    for name in ("a", "b"):
        RunDirectory(tmp_path / name).lock.unlink()
    assert "No run is running." in said("list", "--running")


def test_commands_take_a_name(tmp_path: Path) -> None:
    run_in(tmp_path / "runs" / "mine", step=12)
    assert "12" in said("status", "mine") and "paused" in said("status", "--logdir", "mine")
    assert "forgot" in said("forget", "mine")
    for arguments, name in ((["mine"], "mine"), (["--logdir", "b"], "b")):
        done = CliRunner().invoke(cli, ["status", *arguments])
        assert isinstance(done.exception, NotRunningError) and f"the run {name} does not exist." in str(done.exception)
    run_in(tmp_path / "runs" / "mine")
    assert "Did you mean mine?" in str(CliRunner().invoke(cli, ["status", "minne"]).exception)
    assert isinstance(CliRunner().invoke(cli, ["status", "mine", "--logdir", "mine"]).exception, UsageError)


def test_a_value_with_a_slash_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(tmp_path / "other" / "runs" / "digits")
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    for typed in ("runs/digits", "./digits", "digits/", "other/runs/digits"):
        assert options.run_path(typed) == Path(typed)
        done = CliRunner().invoke(cli, ["pause", typed])
        assert isinstance(done.exception, NotRunningError) and f"{typed} does not exist." in str(done.exception)
    done = CliRunner().invoke(cli, ["pause", "--logdir", "runs/digits"])
    assert isinstance(done.exception, NotRunningError) and "runs/digits does not exist." in str(done.exception)


@pytest.mark.parametrize("how", [["--logdir", "digits"], ["digits"]])
def test_a_run_directory_that_is_here_wins_over_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    run_in(tmp_path / "other" / "digits")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    (tmp_path / "other" / "digits" / "trainerd.log").write_text("theirs")
    shown = said("logs", *how)
    assert "theirs" in shown and "./digits is not a run directory" in shown
    run_in(tmp_path / "digits")
    (tmp_path / "digits" / "trainerd.log").write_text("mine")
    shown = said("logs", *how)
    assert "mine" in shown and f"not the run in {tmp_path}/other/digits" in shown


def test_commands_find_their_run_in_the_same_way() -> None:
    trains = {"run", "start", "cluster"}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for parameter in command.params:
            if parameter.name in ("logdir", "run"):
                assert (parameter.type is options.RUN) == (name not in trains), name


@pytest.mark.parametrize(
    "typed", ["pause", "save", "set a=1", "rollback 5", "pin 5", "unpin 5", "fork 5 new", "evaluate 5", "forget"]
)
def test_what_changes_a_run_says_which_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.chdir(tmp_path)
    rundir = RunDirectory(tmp_path / "elsewhere" / "mine")
    rundir.create()
    registry.remember(rundir)
    name = ["mine"] if typed == "forget" else ["--logdir", "mine"]
    assert str(rundir.path) in CliRunner().invoke(cli, [*typed.split(), *name]).output


def test_the_config_of_a_run_is_found_by_its_name(tmp_path: Path) -> None:
    config = tmp_path / "project" / "trainerd.toml"
    config.parent.mkdir()
    config.write_text('entry = "jobs:job"\nlogdir = "run"\n')
    rundir = RunDirectory(tmp_path / "project" / "run")
    rundir.create()
    registry.remember(rundir, config)
    assert options.config_of_run(RunOptions(logdir=options.run_path("run"))).entry == "jobs:job"


def test_a_run_of_the_digits_job_has_its_config_whatever_is_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir = run_in(tmp_path / "digits", job="trainerd.examples.digits:job")
    (tmp_path / "trainerd.toml").write_text('entry = "mine:job"\nlogdir = "run"\n')
    monkeypatch.chdir(tmp_path)
    found = options.config_of_run(RunOptions(logdir=rundir.path))
    assert (found.entry, found.rundir) == ("trainerd.examples.digits:job", rundir.path)
    assert options.config_of_run(RunOptions(logdir=tmp_path / "other")).entry == "mine:job"


def test_the_folder_of_a_config_is_an_argument_too(tmp_path: Path) -> None:
    run_in(tmp_path / "project" / "run", step=12)
    (tmp_path / "project" / "trainerd.toml").write_text('entry = "mine:job"\nlogdir = "run"\n')
    assert "12" in said("status", str(tmp_path / "project"))
    assert "12" in said("status", str(tmp_path / "project" / ".." / "project"))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "trainerd.toml").write_text('entry = "other:job"\nlogdir = "run"\n')
    with mock.patch("trainerd.cli.commands.jobs.doctor.examine", return_value=[]) as examine:
        said("doctor", "--json", str(tmp_path / "new"))
    assert examine.call_args[0][0].config.entry == "other:job"


def test_a_folder_is_one_run_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    rundir = run_in(tmp_path / "a" / "run")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    registry.remember(RunDirectory(tmp_path / "link" / "run"))
    assert runs.all_paths() == [rundir.path]
    assert "forgot" in said("forget", str(tmp_path / "b" / ".." / "a" / "run")) and runs.all_paths() == []
    assert RunDirectory.of(tmp_path / "a" / ".." / "a" / "run").path == rundir.path
    (tmp_path / "deep").symlink_to(tmp_path / "b" / "c")
    assert RunDirectory.of(tmp_path / "deep" / ".." / "run").path == tmp_path / "b" / "run"
    assert RunDirectory.of(tmp_path / "link" / "run").path == tmp_path / "link" / "run"


def test_a_state_that_is_damaged_is_reported(tmp_path: Path) -> None:
    rundir = run_in(tmp_path / "one", step=5)
    rundir.state.write_text('{"phase": ')
    rundir.lock.unlink()  # it names this process
    assert "state.json is damaged" in said("list")
    assert isinstance(error := CliRunner().invoke(cli, ["status", "one"]).exception, NotRunningError)
    assert "is damaged, and there is no checkpoint yet" in str(error)


def test_all_runs_are_listed(tmp_path: Path) -> None:
    run_in(tmp_path / "a" / "one", step=5, max_steps=10, metrics={"loss": 0.25}, warnings=["it is\nhot"])
    run_in(tmp_path / "b" / "two", error="my own error")
    service = RunDirectory(tmp_path / "services" / "trainerd-blobs")
    service.create()
    State(Phase.TRAINING, step=7).write(service.state)
    lines = said("list").splitlines()
    assert lines[0].split() == ["run", "phase", "step", "loss", "rate", "left", "saved", "trouble"]
    assert lines[1].split() == ["one", "paused", "5", "of", "10", "0.25", "it", "is", "hot"]
    assert lines[2].split()[:2] == ["trainerd-blobs", "killed"] and "it ended while training" in lines[2]
    assert lines[3].split()[-3:] == ["my", "own", "error"]
    assert "it ended while training" in said("status", "trainerd-blobs"), "commands take its name too"
    found = json.loads(said("list", "--json"))
    assert [(each["name"], each["running"], each["step"]) for each in found] == [
        ("one", True, 5),  # the process that holds it is this one
        ("trainerd-blobs", False, 7),
        ("two", True, 0),
    ]


def test_a_service_whose_folder_is_roots_is_reported_by_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "trainerd-blobs").symlink_to(tmp_path / "private" / "trainerd-blobs")
    (tmp_path / "services" / "trainerd.old").mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text(
        '#!/bin/sh\n[ "$4" = trainerd@blobs ] && echo ActiveState=active && echo "StatusText=training: step 7"\n'
    )
    (programs / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    [line] = said("list").splitlines()[1:]
    assert line.split() == ["trainerd-blobs", "running", "active:", "training:", "step", "7"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "only root may look into it" in said("list")


def test_a_table_fits_the_terminal_and_hostile_text_stays_text() -> None:
    state = State(Phase.PAUSED, warnings=["\x1b[2J" + "x" * 300])
    run = runs.ListedRun(RunDirectory(Path("/a")), state, False, name="a\nname")
    narrow = table([run], 60, 0.0).splitlines()
    assert all(len(line) <= 60 for line in narrow) and len(narrow) == 3 and narrow[2].startswith("  \x1b[2Jxxx")
    assert len(table([run], None, 0.0).splitlines()) == 2
    assert "No run is known" in table([], None, 0.0)


def test_params_are_a_column_if_a_run_has_some_and_below_its_row_in_a_narrow_terminal() -> None:
    states = (
        State(Phase.PAUSED, params={"units": 64, "act": "relu"}),
        State(Phase.PAUSED, params={"s": "n" * 50}),
    )
    listed = [runs.ListedRun(RunDirectory(Path(f"/{at}")), state, False) for at, state in enumerate(states)]
    head, one, other = table(listed, None, 0.0).splitlines()
    assert head.split()[-2:] == ["params", "trouble"] and one.endswith('units=64 act="relu"') and other.endswith("nnn…")
    assert table(listed[:1], 60, 0.0).splitlines()[2] == '  units=64 act="relu"'


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["status", ""], ["one"]),
        (["status", "x"], []),
        (["lis"], ["list"]),
        (["predict", ""], ["best", "minimum"]),
        (["rollback", "--logdir", "one", "b"], ["best"]),
        (["evaluate", "--logdir", "nowhere", ""], []),
    ],
)
def test_a_shell_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Sequence[str], offered: list[str]
) -> None:
    run_in(tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    if "nowhere" in typed:  # the steps of the run here are not its
        here = RunDirectory(tmp_path / "runs" / "digits")
        here.create()
        CheckpointStore(here).publish(FakeSnapshot(3000, 1.0), About("test"))
    words = " ".join(["trainerd", *typed])
    environment = {"_TRAINERD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(typed))}
    done = CliRunner(env=environment).invoke(cli, prog_name="trainerd")
    found = [line.partition(",")[2] for line in done.output.splitlines()]
    assert [word for word in found if word not in ("", "x")] == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_offered_nothing_that_it_or_a_terminal_would_obey(tmp_path: Path, shell: str) -> None:
    """Anybody may have written the manifest: the job has."""
    rundir = run_in(tmp_path / "one")
    metrics = {"loss": 1.0, "\x1b[2Jx": 2.0, "a\nb": 3.0, "q$(touch${IFS}x)": 4.0, "a;b": 5.0, "`a`": 6.0}
    CheckpointStore(rundir).publish(FakeSnapshot(20, 1.0), About("\x1b]0;title\x07\nnew line", metrics))
    run_in(tmp_path / "\x1bcrun")
    run_in(tmp_path / "a;b")
    for typed in (["rollback", "--logdir", "one", ""], ["status", ""], ["history", "--logdir", "one", "--metric", ""]):
        environment = {"_TRAINERD_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(["trainerd", *typed])}
        environment["COMP_CWORD"] = "" if shell == "fish" else str(len(typed))
        done = CliRunner(env=environment).invoke(cli, prog_name="trainerd")
        assert done.exit_code == 0 and all(line.isprintable() for line in done.output.expandtabs().splitlines())
        offered = [each for each in ("touch", "a;b", "`") if each in done.output]
        assert not offered, "a shell does not quote what it is offered"
        assert {"rollback": "20", "status": "one", "history": "loss"}[typed[0]] in done.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    assert "_TRAINERD_COMPLETE" in said("completion", shell)


def test_a_program_that_starts_itself_leaves_what_is_remembered_of_the_daemons_start(tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    script = registry.StartedScript(tmp_path, adopt=True, arguments=("--epochs", "3"))
    options = registry.StartOptions(("params.units=64",), max_steps=9)
    registry.remember(rundir, tmp_path / "train.py", script, options)
    registry.remember(rundir)
    assert registry.known() == [registry.RegisteredRun(rundir.path, tmp_path / "train.py", script, options)]
