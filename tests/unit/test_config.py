"""trainerd.toml: what is right, and every kind of wrong."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from trainerd.config import fingerprint, parse, schema
from trainerd.config.fingerprint import of_config
from trainerd.config.metric_goals import Best, MetricTarget
from trainerd.config.training_hours import TrainingHours
from trainerd.errors import ConfigError

MINIMAL = 'entry = "job:job"\nlogdir = "runs/a"\n'


def load(folder: Path, text: str) -> schema.Config:
    path = folder / "trainerd.toml"
    path.write_text(text, encoding="utf-8")
    return parse.load(path)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return str(caught.value).splitlines()


def test_the_least_config_has_the_seeds_defaults(tmp_path: Path) -> None:
    c = load(tmp_path, MINIMAL)
    assert c.checkpoint.save_model_secs == 600 and c.summary.save_summaries_secs == 120
    assert c.max_steps is None and c.target is None
    assert c.rundir == tmp_path / "runs/a"


def test_paths_start_at_the_configs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    c = load(tmp_path, 'entry = "a.b:c.d"\nlogdir = "/abs/ü x"\n')
    assert c.rundir == Path("/abs/ü x")
    assert c.folder == tmp_path


def test_paths_start_at_the_folder_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "sweeps").mkdir()
    c = load(tmp_path / "sweeps", MINIMAL + 'job_folder = ".."\n')
    assert (c.folder, c.rundir, c.path) == (tmp_path, tmp_path / "runs/a", tmp_path / "sweeps/trainerd.toml")
    assert "config.job_folder" not in of_config(c), "the place of a run changes nothing of the training"
    (tmp_path / "sweeps" / "trainerd.toml").write_text('job_folder = ".."\nlogdir = "b"\nwrong = 1\n')
    assert parse.load_rundir(tmp_path / "sweeps" / "trainerd.toml") == tmp_path / "b"
    script = load(tmp_path / "sweeps", 'entry = "a/train.py"\nlogdir = "b"\njob_folder = ".."\n')
    assert script.script_path == tmp_path / "a/train.py"
    with pytest.raises(ConfigError, match=r"job_folder: .* begins with the home directory of a user who has none here"):
        load(tmp_path, MINIMAL + 'job_folder = "~nosuchuser/a"\n')


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    lines = mistakes(
        tmp_path,
        'entri = "a:b"\nlogdir = 3\nmax_steps = 0\nsave_model_secs = 1\n'
        "[checkpoint]\nkeep_lst = 3\nsave_model_secs = -1\n[log]\nlevel = 'loud'\n",
    )
    assert lines[0].endswith("has 8 mistakes:")
    text = "\n".join(lines)
    for part in (
        "entri: this key does not exist. Did you mean `entry`?",
        "entry: missing.",
        "logdir: expected a string, got 3",
        "max_steps: expected a whole number >= 1 (in steps), got 0",
        "save_model_secs: this key does not exist. Did you mean `checkpoint.save_model_secs`?",
        "checkpoint.keep_lst: this key does not exist. Did you mean `checkpoint.keep_last`?",
        'checkpoint.save_model_secs: expected a number, 0 or more, or "auto" (in s), got -1',
        'log.level: expected one of "debug", "info", "warning", "error", got \'loud\'',
    ):
        assert part in text, text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("stop_on_nan = 1", "stop_on_nan: expected true or false, got 1"),
        ("max_steps = true", "max_steps: expected a whole number (in steps), got True"),
        ("max_steps = 1.5", "max_steps: expected a whole number (in steps), got 1.5"),
        ("summary = 4", "summary: expected a table, [summary], got 4"),
        ("target = 'accuracy'", 'target: expected "NAME >= NUMBER" or "NAME <= NUMBER", got \'accuracy\''),
        ("target = 'accuracy >= nan'", "target: nan is not a number to compare with, got 'accuracy >= nan'"),
        ("target = 'accuracy >= high'", "target: could not convert string to float: 'high'"),
        ("[summary]\nmetrics_secs = nan", "summary.metrics_secs: expected a number >= 0.0 (in s), got nan"),
        ("[summary]\nmetrics_secs = inf", "summary.metrics_secs: expected a number <= 1000000000.0"),
        ("[checkpoint]\nsave_secs = 600", "Did you mean `checkpoint.save_model_secs`?"),
        ("[chekpoint]\nkeep_last = 1", "chekpoint: this table does not exist. Did you mean `checkpoint`?"),
        ("[checkpoint]\nsave_model_secs = 'often'", "expected a number, 0 or more, or \"auto\" (in s), got 'often'"),
        ("devices = 0", 'devices: expected "all", a whole number, 1 or more, or a list of names, got 0'),
        ("devices = []", 'devices: expected "all", a whole number, 1 or more, or a list of names, got []'),
        ("zzz = 1", "zzz: this key does not exist."),
        ("name = 'a/b'", "name: expected 1 to 64 printable characters, without a slash"),
        ("name = '-a'", 'without "-", "." or a space in front, got \'-a\''),
        ("tags = ['ok', '']", "tags: expected 1 to 64 printable characters"),
        ("tags = ['ok', 'a\\tb']".replace("'", '"'), "got 'a\\tb'"),
        ("tags = 'ok'", "tags: expected a list of strings, got 'ok'"),
        (f"notes = '{'x' * 2001}'", "notes: expected a string of at most 2000 characters"),
    ],
)
def test_a_mistake(tmp_path: Path, line: str, message: str) -> None:
    assert message in "\n".join(mistakes(tmp_path, MINIMAL + line + "\n"))


@pytest.mark.parametrize("entry", ["job", "job:", ":job", "a b:c", "a:b:c", "a/b:c", "", "a.:b"])
def test_an_entry_that_is_none(tmp_path: Path, entry: str) -> None:
    assert 'entry: expected "module:attribute"' in mistakes(tmp_path, f'entry = "{entry}"\nlogdir = "r"\n')[1]


@pytest.mark.parametrize(
    "content", [b"logdir = runs", b"\xff\xfe", b"[", b"a = 1\na = 2", b"a = " + b"[" * 100_000, b"#" * (1 << 20) + b"#"]
)
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trainerd.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"trainerd\.toml"):
        parse.load(path)


def test_a_wrong_target_and_a_wrong_logdir_are_reported_with_the_rest(tmp_path: Path) -> None:
    text = "\n".join(mistakes(tmp_path, 'entry = "a:b"\nlogdir = "x*"\ntarget = "loss < 1"\nmax_stepz = 1\n'))
    assert "has 3 mistakes" in text and "x* has *" in text and "target: expected" in text and "max_stepz" in text


def test_a_home_directory_that_there_is_not(tmp_path: Path) -> None:
    text = "\n".join(mistakes(tmp_path, 'entry = "a:b"\nlogdir = "~nobody-of-that-name/x"\n'))
    assert "logdir: '~nobody-of-that-name/x' begins with the home directory of a user who has none here" in text


def test_a_folder_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    assert r"caf\udce9/runs/a is not UTF-8" in "\n".join(mistakes(folder, MINIMAL))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trainerd init"):
        parse.load(tmp_path / "none.toml")


def test_a_config_is_frozen_and_every_key_is_described(tmp_path: Path) -> None:
    c = load(tmp_path, MINIMAL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.max_steps = 3  # type: ignore[misc]
    for name, _, key in schema.every_key():
        assert key.metadata["text"].endswith("."), name


@pytest.mark.parametrize(
    ("text", "value", "met"),
    [("a >= 0.97", 0.97, True), ("a >= 0.97", 0.96, False), ("a<=1e-3", 0.001, True), ("a <= 1", float("nan"), False)],
)
def test_a_target(text: str, value: float, met: bool) -> None:
    assert MetricTarget.parse(text).is_met_by({"a": value}) is met
    assert not MetricTarget.parse(text).is_met_by({"b": 0.98})


@pytest.mark.parametrize("name", ["my metric", "val_top 5 (of ten)", "a/b.c-d", "Genauigkeit für %"])
def test_a_goal_takes_any_name_of_a_metric(name: str) -> None:
    assert MetricTarget.parse(f" {name}  >= 0.5 ").is_met_by({name: 0.5})
    assert MetricTarget.parse(f"{name}<=0.5").metric == name == Best.parse(f"min  {name} ").metric


@pytest.mark.parametrize("text", ["", "a", "a > 1", "a >= ", ">= 1", "a >= b >= 1", "a == 1", "a >= 1 2", "a >= nan"])
def test_what_is_not_a_target(text: str) -> None:
    with pytest.raises(ValueError):
        MetricTarget.parse(text)


def test_a_config_that_is_no_file_is_refused_and_a_mark_of_utf_8_is_not(tmp_path: Path) -> None:
    path = tmp_path / "trainerd.toml"
    os.mkfifo(path)
    for found in (path, tmp_path):
        with pytest.raises(ConfigError, match="it is not a regular file"):
            parse.load(found)
    path.unlink()
    path.write_text("x = y")
    with pytest.raises(ConfigError, match=r"not TOML.*To name a run without a config, use `--logdir`"):
        parse.load_rundir(path)
    path.write_bytes(b"x = \xff")
    with pytest.raises(ConfigError, match=r"not text in UTF-8: invalid start byte at byte 4"):
        parse.load(path)
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert parse.load(path).entry == "job:job"
    with pytest.raises(ConfigError, match="has a NUL in it"):
        load(tmp_path, 'entry = "job:job"\nlogdir = "a\\u0000b"\n')
    with pytest.raises(ConfigError, match="has a NUL in it"):
        parse.load_rundir(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed = 1\nlogdir = runs/a # here\n", "line 2, column 10: this is not TOML: invalid value. A string needs qu"),
        ("logdir = runs/a\n", 'A string needs quotes: logdir = "text".'),
        ("deterministic = True\n", "invalid value. Write deterministic = true."),
        ("[checkpoint\n", "line 1, column 12: this is not TOML: expected ']' at the end of a table declaration."),
        ("seed = 1\nseed = 2\n", "line 2, column 9: this is not TOML: cannot overwrite a value."),
        ("max_steps = 3,\n", "line 1, column 14: this is not TOML: expected newline or end of document after a statem"),
        ("tags = [1, 2\n", "end of document: this is not TOML: unclosed array."),
    ],
)
def test_a_file_that_is_not_toml_is_reported_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    """Quotes are advised only where a word stands without them."""
    (tmp_path / "trainerd.toml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        parse.load(tmp_path / "trainerd.toml")
    assert says in str(raised.value) and ("quotes" in str(raised.value)) == ("logdir" in text)


# ---------------------------------------------------------------------- [when]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('hours = "25:00-08:00"', "when.hours: there is no 25:00. A day is from 00:00 to 24:00, got '25:00-08:00'"),
        ('hours = ["20:00-22:00", "8-9"]', "when.hours: expected a span such as \"20:00-08:00\", got '8-9'"),
        ("hours = 20", "when.hours: expected a string, or a list of one or more, got 20"),
        ("hours = []", "when.hours: expected a string, or a list of one or more, got []"),
        ("days = []", "when.days: expected a string, or a list of one or more, got []"),
        ('days = "mon-fry"', "when.days: expected days such as"),
        ("resume_temp = 70", "when.resume_temp: it needs a `max_temp`"),
        ("max_temp = 80\nresume_temp = 80", "below `max_temp`, which is 80, got 80"),
        ("idle_min = 10", "when.idle_min: this key does not exist. Did you mean `when.idle_mins`?"),
    ],
)
def test_hours_that_never_come_are_a_mistake(tmp_path: Path, lines: str, message: str) -> None:
    assert message in "\n".join(mistakes(tmp_path, f"{MINIMAL}[when]\n{lines}\n"))


def test_without_hours_and_days_every_hour_is_right(tmp_path: Path) -> None:
    assert load(tmp_path, f"{MINIMAL}[when]\nidle_mins = 10\n").when.parsed_hours() is None
    assert load(tmp_path, f'{MINIMAL}[when]\ndays = "sat"\n').when.parsed_hours() == TrainingHours(days=frozenset({5}))


def test_when_is_not_trained(tmp_path: Path) -> None:
    plain = fingerprint.of_config(load(tmp_path, MINIMAL))
    assert fingerprint.of_config(load(tmp_path, f'{MINIMAL}[when]\nhours = "20:00-08:00"\nmax_temp = 80\n')) == plain
