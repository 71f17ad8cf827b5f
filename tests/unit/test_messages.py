"""Messages that a person meets when a command or a config is wrong: each says what is wrong, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli.commands.history import pin
from trainerd.config import parse, tables
from trainerd.config.metric_goals import Best
from trainerd.errors import ConfigError, EntryError, UsageError
from trainerd.history import plots
from trainerd.history.curves import Curve
from trainerd.history.story import Story
from trainerd.job.params import ScriptParams
from trainerd.job.settable import Settable
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.sweeps import picture
from trainerd.sweeps.standing import SweepStanding
from trainerd.system import regular_files


@pytest.fixture
def run_here(tmp_path: Path) -> Path:
    """A run directory that was never trained in, with its config."""
    (tmp_path / "trainerd.toml").write_text('entry = "job:job"\nlogdir = "run"\n')
    RunDirectory(tmp_path / "run").create()
    return tmp_path / "run"


@pytest.mark.usefixtures("run_here")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("evaluate 3 --all", 64, "STEP, --all, --minima and --since exclude each other. Give one."),
        ("run --forever --max-steps 3", 64, "--forever and --max-steps contradict each other. Give one."),
        ("copy --once --while-training", 64, "--once and --while-training contradict each other."),
        ("install --agent --watch", 64, "--agent and --watch contradict each other."),
        ("status run --logdir run", 64, "the run is given twice: as an argument and as --logdir. Give one."),
        ("run train.py --config trainerd.toml", 64, "the script train.py and --config are both given. Give one"),
        (
            "set learning_rate 0.1",
            69,
            "learning_rate does not exist. `trainerd list` shows your runs.\nUsage: ",
        ),
        ("pin trainerd.toml 3", 64, "RUN: expected a directory, got the file 'trainerd.toml'."),
        ("evaluate 1_000", 64, "has no checkpoint of step 1000. There is none yet."),
        ("run train.sh", 64, "expected a script, such as train.py, got 'train.sh'. --config names a config."),
        ("run --adopt", 64, "--adopt and the arguments after `--` are for a script, and entry = 'job:job'."),
        ("run --rank 1", 64, "--rank is for a run on several machines, and the config has no [cluster]"),
        ("init .", 64, "has a trainerd.toml already, so nothing was written. Choose another directory."),
        (
            "evaluate --minima",
            69,
            "has no checkpoint that is a minimum of the loss yet. `trainerd checkpoints` shows all.",
        ),
        ("evaluate --since 7", 69, "has no checkpoint of step 7 or later yet."),
        ("evaluate", 69, "has no checkpoint yet."),
        ("events", 69, "run has no events."),
        ("events --since 2d", 69, "run has no events in that time."),
        ("events --kind start", 69, "run has no events of kind start."),
        ("rollback 3", 64, "run has no checkpoint of step 3. There is none yet."),
        ("rollback best", 64, "run has no checkpoints yet."),
        ("rollback last", 64, "expected a step, `best` or `minimum`, got 'last'."),
        ("rollback 3 --metric loss", 64, "--metric goes with `best`, and '3' is given."),
        ("export 3", 64, "OUT is missing after the checkpoint '3'."),
        ("export 3 a b", 64, "expected a checkpoint and OUT, got '3 a b'."),
        ("export out", 69, "run has no checkpoints yet."),
        ("set rate", 64, "expected NAME=NUMBER, such as learning_rate=1e-4, got 'rate'."),
        ("set rate=1 rate=2", 64, "rate is set twice."),
        ("forget ./run", 64, "no run is known in"),
        ("diff x 3", 64, "'x' is not a step, a run directory, or the path of a checkpoint, as run/model.ckpt-500."),
        ("unpin 3", 64, "step 3 is not pinned in"),
        ("history", 69, "run has no curve of 'loss' yet."),
        (
            "install --watch --name a",
            64,
            "--watch takes no --name and no --config: the watcher has a",
        ),
        ("install --name -a", 64, "--name"),
        ("save", 69, "nothing trains in"),
        ("status --logdir ./nosuch", 69, "the run directory ./nosuch does not exist. `trainerd list` shows your runs."),
        ("set rate=1", 69, " start` starts it; then type this again."),
        (
            "sweep . --set seed=1,2 --metric a --halve b",
            64,
            "--metric and --halve contradict each other. Give one.",
        ),
        ("install --user --config train.py", 64, "a service needs a config. Write "),
        ("install --slurm", 64, "exists and has other content. Move it, and try again."),
        ("watch --config watch.toml --test", 78, "has no `channels` in its table [watch]."),
    ],
)
def test_a_wrong_command_line_is_reported(cli: Cli, arguments: str, code: int, says: str) -> None:
    for name in ("train.py", "trainerd.sbatch", "watch.toml"):
        Path(name).touch(0o600)
    found, text = cli(*arguments.split())
    assert found == code and says in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a = " + b"[" * 5000 + b"]" * 5000, "its values are nested too deeply."),
        (b"#" * (1 << 20) + b"\n", "it is larger than 1.0 MiB, the most that trainerd reads."),
        (b"a = '\xff'", "is not text in UTF-8: invalid start byte at byte 5. Save it as UTF-8."),
    ],
)
def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "trainerd.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=path.name) as raised:
        parse.load(path)
    assert says in str(raised.value)


def test_a_batch_script_needs_a_config(cli: Cli) -> None:
    code, text = cli("install", "--slurm")
    assert code == 64 and "this folder has no trainerd.toml: `trainerd init DIR` writes one to start from." in text


def test_a_missing_file_and_a_directory_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no .*none\.toml\. Write one\."):
        tables.read(tmp_path / "none.toml", "Write one.")
    with pytest.raises(ConfigError, match="it is not a regular file"):
        tables.read(tmp_path, "")


def test_names_of_files_are_checked(tmp_path: Path) -> None:
    for basename in ("", ".model", "a/b", "model*"):
        with pytest.raises(ConfigError, match=f"checkpoint_basename '{basename.replace('*', '.')}' cannot be a file"):
            RunDirectory(tmp_path, basename)
    with pytest.raises(ValueError, match='expected "min NAME" or "max NAME"'):
        Best.parse("loss")


def test_a_picture_has_one_of_two_kinds(tmp_path: Path) -> None:
    story = Story("loss", Curve(), [], [])
    with pytest.raises(UsageError, match=r"--image: expected a \.png or a \.svg, got .*a\.jpg"):
        plots.as_picture(story, tmp_path / "a.jpg")


def test_numbers_and_parameters_that_do_not_fit_are_reported() -> None:
    with pytest.raises(EntryError, match=r"settable: the minimum 2 is greater than the maximum 1\."):
        Settable(None, 2.0, 1.0)
    with pytest.raises(EntryError, match=r"\[params\] has 'rate', and the script's call of trainerd.params"):
        ScriptParams("train.py", {"rate": 1}).over({"units": 3})


def test_a_checkpoint_that_is_moved_away_is_reported(rundir: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    store = CheckpointStore(rundir)
    store.publish(FakeSnapshot(5, 10.0), About("test"))
    store.quarantine(5, "its index is damaged")
    assert "the checkpoint of step 5 does not verify and is now in " in caplog.text


def test_a_checkpoint_that_is_deleted_while_it_is_pinned_is_reported(
    cli: Cli, run_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir = RunDirectory(run_here)
    CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("test"))

    def delete(path: Path) -> int:
        rundir.manifest(5).unlink()
        return regular_files.open_to_append(path)

    monkeypatch.setattr(pin, "open_to_append", delete)
    code, text = cli("pin", "5")
    assert code == 64 and "the checkpoint of step 5 is being deleted. `trainerd checkpoints` shows" in text


def test_a_sweep_without_its_metric_has_no_picture(tmp_path: Path) -> None:
    standing = SweepStanding(None, Best("loss", is_least=True), [])  # type: ignore[arg-type]  # it is not reached
    with pytest.raises(UsageError, match="--image: no point has the metric 'loss' yet"):
        picture.as_picture(standing, tmp_path / "a.png")


def test_a_group_that_cannot_be_given_access_is_reported(
    run_here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRAINERD_GROUP_MAY_ASK", "1")
    rundir = RunDirectory(run_here)
    rundir.requests.touch()
    request_files.open_to_group(rundir)
    assert "the group cannot be given access to" in caplog.text
