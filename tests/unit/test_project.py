"""The files that other tools read about this repository agree with the Makefile and the gate."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, f"the Makefile has no target {target!r}"
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_pre_commit_runs_the_commands_of_make_lint_types() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    [repository] = config["repos"]
    assert repository["repo"] == "local", "nothing is downloaded"
    hooks = repository["hooks"]
    assert [hook["entry"] for hook in hooks] == recipe("lint") + recipe("types")
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in hooks)


def test_the_jobs_of_the_forge_run_the_gate() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    [job] = workflow["jobs"].values()
    targets = {target for each in job["strategy"]["matrix"]["include"] for target in each["targets"].split()}
    gate = re.sub(r"#.*|\"[^\"]*\"", "", (ROOT / ".ci" / "run").read_text())
    commands = re.findall(r"\bmake ([a-z][a-z -]*)", gate)
    expected = {target for command in commands for target in command.split()}
    assert targets == expected - {"bench-short"}, "a shared machine skews what that measures"


def required() -> dict[str, str]:
    """The range of each package that setup.cfg names, by its name."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines() + config["options.extras_require"]["test"].splitlines()
    pairs = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return {name: bounds for name, _, bounds in pairs} | {"python": config["options"]["python_requires"]}


def test_the_oldest_pair_is_the_lower_bound() -> None:
    ranges = required()
    lines = (ROOT / "packaging" / "oldest.txt").read_text().splitlines()
    pins = dict(line.removesuffix(".*").split("==") for line in lines if not line.startswith("#"))
    assert pins.keys() == {"tensorflow", "keras", "tensorboard", "tf_keras"}
    for name, version in pins.items():
        assert re.match(rf">= {re.escape(version)}(,|$)", ranges[name]), name


def test_every_python_that_is_allowed_is_named() -> None:
    lower, upper = map(int, re.findall(r"3\.(\d+)", required()["python"]))
    named = re.findall(r"Python :: 3\.(\d+)", (ROOT / "setup.cfg").read_text())
    assert named == [str(minor) for minor in range(lower, upper)]
    assert f"(3, {lower}) <= sys.version_info < (3, {upper})" in (ROOT / "Makefile").read_text()
    assert f"python3.{lower}" in variable("OLDEST_PYTHON")


def variable(name: str) -> str:
    """The value of a variable of the Makefile."""
    found = re.search(rf"^{name} [?:]= ?(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, f"the Makefile has no variable {name}"
    return found[1]
