"""The files that other tools read about this repository agree with the Makefile and the gate."""

from __future__ import annotations

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
