"""Parameters of a job: from the config or the command line to the arguments of its function."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import trainerd
from tests.unit.conftest import Cli
from tests.unit.test_config import MINIMAL, load, mistakes
from tests.unit.test_entry import GOOD, fresh_modules
from trainerd.cli import options
from trainerd.cli.options import RunOptions
from trainerd.config import edit, parse
from trainerd.config.fingerprint import builds_otherwise, differences, of_config
from trainerd.errors import ConfigError, EntryError, UsageError
from trainerd.job.definition import Job, Program
from trainerd.job.entry import load_job
from trainerd.job.params import ScriptParams, giving
from trainerd.rundir.claim import claimed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import State, read_state

__all__ = ["fresh_modules"]

PARAMS = '[params]\nlearning_rate = 0.001\nunits = [32, 64]\nkind = "adam"\nnesterov = true\n'
VALUES: dict[str, Any] = {"learning_rate": 0.001, "units": (32, 64), "kind": "adam", "nesterov": True}
TAKES_UNITS = (
    "import trainerd\ndef job(units, rate=0.1):\n    return trainerd.Job(lambda: None, state={'u': (units, rate)})\n"
)


# ---------------------------------------------------------------------- the table


def test_names_are_free_and_values_keep_their_type(tmp_path: Path) -> None:
    params = load(tmp_path, MINIMAL + PARAMS).params
    assert params == VALUES and [type(each) for each in params.values()] == [float, tuple, str, bool]
    assert load(tmp_path, MINIMAL).params == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("class = 1", "params.class: expected a name that Python takes for an argument"),
        ("'a-b' = 1", "params.a-b: expected a name that Python takes for an argument"),
        ("'' = 1", "params.: expected a name that Python takes for an argument"),
        (
            "a = {b = 1}",
            "params.a: expected a string, a finite number, true or false, or a list of these, got {'b': 1}",
        ),
        ("a = [[1]]", "params.a: expected a string, a finite number"),
        ("a = 2024-01-01", "params.a: expected a string, a finite number"),
        ("a = nan", "params.a: expected a string, a finite number"),
        ("a = [1.5, inf]", "params.a: expected a string, a finite number"),
        ("a = 1" + "0" * 30, "params.a: expected a string, a finite number"),
    ],
)
def test_a_wrong_parameter_is_a_mistake_of_the_config(tmp_path: Path, line: str, message: str) -> None:
    assert message in "\n".join(mistakes(tmp_path, f"{MINIMAL}[params]\n{line}\n"))


def test_params_that_are_no_table_are_a_mistake(tmp_path: Path) -> None:
    assert "params: expected a table, [params], got 3" in "\n".join(mistakes(tmp_path, f"{MINIMAL}params = 3\n"))


def test_each_parameter_is_an_entry_of_the_fingerprint(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL + PARAMS)
    before, now = of_config(config), of_config(replace(config, params={**VALUES, "kind": "sgd"}))
    assert before["config.params.units"] == "(32, 64)" and "config.params" not in before
    changes = differences(before | {"job.graph": "1"}, now | {"job.graph": "2"})
    assert [str(each) for each in changes] == ["config.params.kind: adam → sgd", "job.graph: 1 → 2"]
    assert not builds_otherwise(changes, {"job.source": "job.py 1"}), "another parameter builds another graph"


def test_the_state_has_the_parameters(tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path / "run")
    with claimed(rundir, "job:job") as reporter:
        reporter.update(**load(tmp_path, MINIMAL + PARAMS).description())
    state = read_state(rundir.state)
    assert state is not None and state.params == VALUES
    assert state.shown_params() == 'learning_rate=0.001 units=[32, 64] kind="adam" nesterov=true'
    assert State().shown_params() == ""


# ---------------------------------------------------------------------- the function


def loaded(folder: Path, source: str, entry: str = "myjob:job", **params: Any) -> object:
    (folder / "myjob.py").write_text(source, encoding="utf-8")
    return load_job(entry, folder, {"hparams": lambda: None}, params=params)


def test_a_function_gets_its_parameters_as_arguments(tmp_path: Path) -> None:
    job = loaded(tmp_path, TAKES_UNITS, units=64)
    assert isinstance(job, Job) and job.state["u"] == (64, 0.1)


def test_a_function_with_free_arguments_takes_any(tmp_path: Path) -> None:
    job = loaded(tmp_path, TAKES_UNITS.replace("units, rate=0.1", "**units").replace(", rate", ""), a=1, b=2)
    assert isinstance(job, Job) and job.state["u"] == ({"a": 1, "b": 2})


def test_a_program_gets_the_supervisor_and_its_parameters(tmp_path: Path) -> None:
    source = "def main(supervisor, units, *, rate):\n    return supervisor, units, rate\n"
    program = loaded(tmp_path, source, "myjob:main", units=64, rate=0.5)
    assert isinstance(program, Program) and program.function(7) == (7, 64, 0.5)


@pytest.mark.parametrize(
    ("source", "params", "part"),
    [
        (TAKES_UNITS, {"unit": 1}, "[params] has 'unit', and the function has no such argument. Did you mean 'units'?"),
        (TAKES_UNITS, {"zzz": 1}, "It has 'units', 'rate'."),
        (TAKES_UNITS.replace("rate=0.1", "rate=0.1, /"), {"units": 1}, "no such argument. It has none."),
        (TAKES_UNITS.replace("rate=", "hparams="), {"hparams": 1}, "an argument that trainerd gives itself. Rename"),
        (GOOD, {"units": 1}, "no such argument. It has none."),
        (GOOD + "job = job()\n", {"units": 1, "k": 2}, "is a Job, and [params] has 'units', 'k'. Parameters are"),
        (GOOD + "job = job()\n", {"units": 1, "k": 2}, "such as `def job(units, k)`."),
        (TAKES_UNITS.replace("rate=0.1", "rate"), {}, "others need a default, or a value in the table [params]."),
    ],
)
def test_a_parameter_that_has_no_effect_is_refused(
    tmp_path: Path, source: str, params: dict[str, Any], part: str
) -> None:
    with pytest.raises(EntryError) as caught:
        loaded(tmp_path, source, **params)
    assert part in str(caught.value)


# ---------------------------------------------------------------------- a script


def test_a_script_gets_its_defaults_and_what_is_set_in_their_place() -> None:
    assert trainerd.params(units=32, rate=0.1) == {"units": 32, "rate": 0.1}
    with giving(ScriptParams("train.py", {"units": 64})):
        assert trainerd.params(units=32, rate=0.1) == {"units": 64, "rate": 0.1}
        with pytest.raises(EntryError, match=r"has 'units'.* does not\. Did you mean 'unit'\?"):
            trainerd.params(unit=32)
    assert trainerd.params(units=32) == {"units": 32}


def test_a_script_that_has_not_asked_for_its_parameters_cannot_train() -> None:
    script = ScriptParams("train.py", {"units": 64})
    with pytest.raises(EntryError, match="has 'units', and the script has not called"):
        script.require_asked()
    script.over({"units": 1})
    script.require_asked()
    ScriptParams("train.py", {}).require_asked()


def test_asking_for_parameters_imports_no_tensorflow() -> None:
    code = "import sys, trainerd; print(trainerd.params(a=1), 'tensorflow' in sys.modules, 'keras' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{'a': 1} False False\n"


# ---------------------------------------------------------------------- the command line


def test_set_changes_any_key_and_is_applied_again_at_a_reload(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL + 'tags = ["a"]\n[params]\nunits = 1\nrate = 0.5\n[log]\nlevel = "error"\n')
    given = ("params.units=[2, 3]", "params.kind=adam", "checkpoint.keep_last=9", "max_steps=70")
    change = RunOptions(changes=given, max_steps=90).overrides()
    for _ in range(2):
        found = change(config)
        assert found.params == {"units": (2, 3), "rate": 0.5, "kind": "adam"}
        assert (found.checkpoint.keep_last, found.max_steps, found.log.level) == (9, 90, "error")
        assert (found.path, found.folder, found.rundir, found.tags) == (config.path, tmp_path, config.rundir, ("a",))
        config = load(tmp_path, MINIMAL + 'tags = ["a"]\n[params]\nunits = 7\nrate = 0.5\n[log]\nlevel = "error"\n')


def test_set_works_for_a_script_and_keeps_how_it_was_chosen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    config = replace(parse.load(tmp_path / "train.py"), rank=2, accept_job=True)
    found = edit.with_changes(config, edit.read_changes(["params.units=3"]))
    assert found == replace(config, params={"units": 3})
    assert edit.with_changes(config, {}) is config


@pytest.mark.parametrize(
    ("given", "kind", "part"),
    [
        ("params.class=5", ConfigError, "--set params.class=5: expected a name that Python takes"),
        ("params.a={b = 1}", ConfigError, "--set params.a={b = 1}: expected a string, a finite number"),
        ("max_step=5", ConfigError, "--set max_step=5: this key does not exist. Did you mean `max_steps`?"),
        ("params=5", ConfigError, "--set params=5: expected a table"),
        ("max_steps.a=5", ConfigError, "--set max_steps.a=5: expected a whole number"),
        ("deterministic=true", ConfigError, "--set deterministic=true: it needs a `seed`"),
        ("entry.a=5", UsageError, "`entry` is a key of the config and not a table"),
        ("logdir=x", UsageError, "--set logdir: give --logdir"),
        ("params.units", UsageError, "--set: expected KEY=VALUE, such as max_steps=3000, got 'params.units'."),
    ],
)
def test_a_wrong_change_is_blamed_on_the_option(tmp_path: Path, given: str, kind: type[Exception], part: str) -> None:
    with pytest.raises(kind) as caught:
        RunOptions(changes=(given,)).overrides()(load(tmp_path, MINIMAL))
    assert part in str(caught.value)


def test_the_options_are_typed_again_by_what_keeps_the_run_alive() -> None:
    run = RunOptions(Path("train.py"), changes=("params.units=3", "params.kind=a b"), arguments=("-x",))
    assert run.typed() == ["--set", "params.units=3", "--set", "params.kind=a b", "train.py", "--", "-x"]


def test_a_command_that_reads_a_run_builds_the_job_with_the_parameters_of_its_start(tmp_path: Path) -> None:
    load(tmp_path, MINIMAL + "[params]\nunits = 1\n")
    run = RunOptions(tmp_path / "trainerd.toml")
    assert options.config_of_run(run).params == {"units": 1}
    with claimed(RunDirectory(tmp_path / "runs" / "a"), "job:job") as reporter:
        reporter.update(params={"units": 64})
    assert options.config_of_run(run).params == {"units": 64}


def test_status_shows_the_parameters(cli: Cli, tmp_path: Path) -> None:
    with claimed(RunDirectory(tmp_path / "run"), "job:job") as reporter:
        reporter.update(params={"units": 64, "kind": "adam"})
    row = re.search(r"^params +(.*)$", cli("status", "run")[1], re.MULTILINE)
    assert row is not None and row[1] == 'units=64 kind="adam"'


def test_the_config_of_a_fork_has_other_parameters(tmp_path: Path) -> None:
    text = edit.changed(
        MINIMAL + "\n[params]  # mine\nunits = 1\n", edit.read_changes(["params.units=64", "params.a=b"])
    )
    assert load(tmp_path, text).params == {"units": 64, "a": "b"} and "# mine" in text
