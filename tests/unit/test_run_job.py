"""The job of a run: no other one trains in its run directory, and what is advised starts it and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli
from trainerd.checkpoints.catalogue import newest
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import DataError
from trainerd.history.fork import fork
from trainerd.history.rollback import RollbackTarget
from trainerd.history.run_job import job_of, require_own_job
from trainerd.rundir import registry
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.registry import StartedScript
from trainerd.rundir.state import Phase, State


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def trained(rundir: RunDirectory, job: str, *steps: int) -> None:
    """A run of this job, which was paused."""
    store = CheckpointStore(rundir)
    for step in steps or (5, 7):
        store.publish(FakeSnapshot(step, 1.0), About("schedule", fingerprint={"config.entry": job} if job else {}))
    State(Phase.PAUSED, job=job, step=7).write(rundir.state)


@pytest.mark.parametrize("theirs", ["theirs:job", "train.py"])
@pytest.mark.parametrize("typed", ["run", "start --keep-alive"])
def test_the_run_of_another_job_is_refused_and_left_as_it_is(
    cli: Cli, rundir: RunDirectory, tmp_path: Path, theirs: str, typed: str
) -> None:
    trained(rundir, theirs)
    registry.remember(rundir, tmp_path / "theirs.toml")
    before = rundir.state.read_bytes()
    Path("trainerd.toml").write_text('entry = "mine:job"\nlogdir = "run"\n')
    code, text = cli(*typed.split())
    assert code == 65 and theirs in text and "mine:job" in text and "--accept-job" in text
    assert str(rundir.accept_job) in text
    assert ("command that started train.py resumes it" in text) == (theirs == "train.py")
    assert rundir.state.read_bytes() == before and not rundir.events.exists()
    assert registry.known() == [registry.RegisteredRun(rundir.path, tmp_path / "theirs.toml")]


def test_a_job_is_accepted_in_its_own_run_and_where_none_is_named(rundir: RunDirectory) -> None:
    require_own_job(rundir, newest(rundir), "mine:job", is_accepted=False)
    trained(rundir, "", 5)
    require_own_job(rundir, newest(rundir), "mine:job", is_accepted=False)
    trained(rundir, "mine:job", 7)
    require_own_job(rundir, newest(rundir), "mine:job", is_accepted=False)
    require_own_job(rundir, newest(rundir), "", is_accepted=False)
    require_own_job(rundir, newest(rundir), "renamed:job", is_accepted=True)
    with pytest.raises(DataError):
        require_own_job(rundir, newest(rundir), "renamed:job", is_accepted=False)
    with pytest.raises(DataError, match=r"touch .*accept-job") as refused:
        require_own_job(rundir, newest(rundir), "train.py", is_accepted=False)
    assert "--accept-job" not in str(refused.value), "a program has no options of trainerd"


def test_a_fork_is_of_the_same_job_unless_its_entry_is_set(rundir: RunDirectory, tmp_path: Path) -> None:
    trained(rundir, "mine:job")
    plain = fork(rundir, RollbackTarget(5), tmp_path / "plain", {})
    assert job_of(plain) == "mine:job" and not plain.accept_job.exists()
    assert fork(rundir, RollbackTarget(5), tmp_path / "other", {"entry": '"other:job"'}).accept_job.exists()


ADVISED = ["save", "set a=1", "rollback 5"]


@pytest.mark.parametrize("typed", ADVISED)
def test_for_the_run_of_a_program_that_program_is_advised(cli: Cli, rundir: RunDirectory, typed: str) -> None:
    trained(rundir, "my train.py")
    text = cli(*typed.split(), "--logdir", "run")[1]
    assert "The command that started my train.py" in text and "trainerd start" not in text
    assert "python" not in text, "its arguments and its folder are not known"


@pytest.mark.parametrize("typed", ADVISED)
def test_for_the_run_of_a_script_the_line_that_started_it_is_advised(
    cli: Cli, rundir: RunDirectory, tmp_path: Path, typed: str
) -> None:
    trained(rundir, "my train.py")
    script = Path("my train.py").absolute()
    script.write_text('fit(model, logdir="run")\n')
    registry.remember(rundir, script, StartedScript(Path.cwd(), True, ("--epochs", "3 4")))
    assert " start 'my train.py' --adopt -- --epochs '3 4'`" in cli(*typed.split(), "--logdir", "run")[1]
    (elsewhere := tmp_path / "elsewhere").mkdir()
    registry.remember(rundir, script, StartedScript(elsewhere, False, ()))
    trained(rundir, "my train.py", 5, 9)
    text = cli(*typed.split(), "--logdir", "run")[1]
    assert f"`cd {elsewhere} && " in text and f" start '{script}' --logdir {rundir.path}`" in text
    config = elsewhere / "trainerd.toml"
    config.write_text(f'entry = "{script}"\nlogdir = "{rundir.path}"\n')
    registry.remember(rundir, config)
    assert f" start --config {config}`" in cli(*typed.split(), "--logdir", "run")[1]


@pytest.mark.parametrize("typed", ADVISED)
def test_for_the_run_of_a_config_that_config_is_advised(
    cli: Cli, rundir: RunDirectory, tmp_path: Path, typed: str
) -> None:
    trained(rundir, "mine:job")
    config = tmp_path / "mine" / "trainerd.toml"
    config.parent.mkdir()
    config.write_text('entry = "mine:job"\nlogdir = "../run"\n')
    registry.remember(rundir, config)
    assert f"start --config {config}`" in cli(*typed.split(), "--logdir", "run")[1]
    config.write_text('entry = "mine:job"\nlogdir = "elsewhere"\n')
    trained(rundir, "mine:job", 5, 9)
    assert f"start --config {config} --logdir run`" in cli(*typed.split(), "--logdir", "run")[1]


def test_the_digits_example_is_advised_where_another_config_is_here(cli: Cli, rundir: RunDirectory) -> None:
    trained(rundir, "trainerd.examples.digits:job")
    assert "start --logdir run`" in cli("save", "--logdir", "run")[1]
    Path("trainerd.toml").write_text('entry = "mine:job"\nlogdir = "mine"\n')
    assert "digits.toml --logdir run`" in cli("save", "--logdir", "run")[1]


def test_what_is_forked_from_the_run_of_a_program_is_trained_by_it(cli: Cli, rundir: RunDirectory) -> None:
    trained(rundir, "train.py")
    text = cli("fork", "5", "new", "--logdir", "run")[1]
    assert "command that started train.py, with the run directory" in text and "/new, trains it" in text
    assert "trainerd" not in text.partition("forked")[2]


@pytest.mark.parametrize("adopts", [True, False])
def test_what_is_forked_from_the_run_of_a_script_has_a_line_that_trains_it(
    cli: Cli, rundir: RunDirectory, tmp_path: Path, adopts: bool
) -> None:
    trained(rundir, "train.py")
    Path("train.py").write_text('fit(model, logdir="run")\n')
    registry.remember(rundir, Path("train.py").absolute(), StartedScript(Path.cwd(), adopts, ()))
    new, options = Path("new").absolute(), " --adopt" * adopts
    line = f" run train.py --logdir {new}{options}` trains it."
    text = cli("fork", "5", "new", "--logdir", "run")[1]
    assert line in text and (f"When the script has `logdir` = {new}, `" in text) != adopts
