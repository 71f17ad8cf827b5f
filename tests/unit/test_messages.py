"""Messages that a person meets when a command or a config is wrong: each says what is wrong, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.conftest import Cli
from trainerd.config import parse, tables
from trainerd.config.metric_goals import Best
from trainerd.errors import ConfigError, UsageError
from trainerd.history import plots
from trainerd.history.curves import Curve
from trainerd.history.story import Story
from trainerd.rundir.paths import RunDirectory


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
        ("status run --logdir run", 64, "the run is given twice: as an argument and as --logdir. Give one."),
        ("run train.py --config trainerd.toml", 64, "the script train.py and --config are both given. Give one"),
        ("set learning_rate 0.1", 69, "there is no run learning_rate. `trainerd list` shows your runs.\nUsage: "),
        ("pin trainerd.toml 3", 64, "RUN: expected a directory, got the file 'trainerd.toml'."),
        ("evaluate 1_000", 64, "has no checkpoint of step 1000. There is none yet."),
        ("run train.sh", 64, "expected a script, such as train.py, got 'train.sh'. --config names a config."),
        ("run --adopt", 64, "--adopt and the arguments after `--` are for a script, and entry = 'job:job'."),
        ("run --rank 1", 64, "--rank is for a run on several machines, and the config has no [cluster]"),
        ("init .", 64, "has a trainerd.toml already, so nothing was written. Choose another directory."),
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
    ],
)
def test_a_wrong_command_line_is_reported(cli: Cli, arguments: str, code: int, says: str) -> None:
    Path("train.py").touch()
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
