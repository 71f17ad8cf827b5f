"""The help of each command has examples that the command takes, and names options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from trainerd.cli.app import COMMANDS, CommandWithExamples, cli


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Every command with its path, the groups too."""
    yield "trainerd", cli
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield f"trainerd {name}", command
        for each in command.commands.values() if isinstance(command, click.Group) else ():
            yield f"trainerd {name} {each.name}", each


EVERY = dict(every_command())


def help_of(title: str) -> str:
    return EVERY[title].get_help(click.Context(EVERY[title], info_name=title, help_option_names=["-h", "--help"]))


@pytest.mark.parametrize("title", EVERY)
def test_help_has_two_examples_that_parse(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run in ("digits", "mnist", "runs/digits", "runs/first", "runs/second", "sweeps/rates"):
        (tmp_path / run).mkdir(parents=True)
    command = EVERY[title]
    assert isinstance(command, CommandWithExamples)
    assert len(command.examples) >= 2
    for line in command.examples:
        words = shlex.split(line.removeprefix("sudo ").partition(" > ")[0])
        known = max((each for each in EVERY if " ".join(words).startswith(each)), key=len)
        assert known.startswith(title)
        EVERY[known].make_context(known, words[len(known.split()) :])


@pytest.mark.parametrize("title", EVERY)
def test_help_names_options_of_the_command_and_no_ranges(title: str) -> None:
    text = help_of(title)
    own = {name for each in EVERY[title].params if isinstance(each, click.Option) for name in each.opts}
    prose = text.partition("\nExamples:")[0]
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", prose)) <= own | {"--version", "--help"}
    assert "<=" not in text and "RANGE" not in text


@pytest.mark.parametrize("title", EVERY)
def test_help_fits_a_terminal(title: str) -> None:
    command = EVERY[title]
    assert isinstance(command, CommandWithExamples)
    for line in help_of(title).splitlines():
        assert len(line) <= 80 or line.lstrip().startswith("--kind [") or line.strip() in command.examples, line


@pytest.mark.parametrize(
    ("line", "run", "own"),
    [
        ("rollback digits best", "digits", {"where": "best"}),
        ("rollback --metric digits digits best", "digits", {"where": "best", "metric": "digits"}),
        ("rollback 500", None, {"where": "500"}),
        ("fork best digits", None, {"where": "best", "folder": Path("digits")}),
        ("fork digits 500 new", "digits", {"where": "500", "folder": Path("new")}),
        ("evaluate digits", "digits", {"steps": ()}),
        ("evaluate 500 900", None, {"steps": (500, 900)}),
        ("diff digits mnist", None, {"one": "digits", "other": "mnist"}),
        ("diff digits 500 900", "digits", {"one": "500", "other": "900"}),
        ("set learning_rate=1 momentum=2", None, {}),
        ("set digits learning_rate=1", "digits", {}),
        ("rollback best --logdir digits", None, {"where": "best"}),
        ("export newest digits --logdir digits", None, {"words": ("newest", "digits")}),
        ("export digits", None, {"words": ("digits",)}),
        ("export digits best out", "digits", {"words": ("best", "out")}),
        ("predict digits -o x.csv", "digits", {"words": ()}),
        ("tensorboard --samples_per_plugin images=9", None, {"more": ("--samples_per_plugin", "images=9")}),
        ("tensorboard digits --samples_per_plugin images=9", "digits", {"more": ("--samples_per_plugin", "images=9")}),
    ],
)
def test_the_first_argument_of_a_command_may_name_the_run(
    line: str, run: str | None, own: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    name, *words = line.split()
    given = EVERY[f"trainerd {name}"].make_context(name, words).params
    assert given["run"] == (None if run is None else Path(run))
    assert own.items() <= given.items()


def test_every_command_that_takes_a_logdir_of_a_run_takes_the_run_as_an_argument() -> None:
    for title, command in EVERY.items():
        params = {each.name: each for each in command.params}
        if "logdir" in params and not {"script", "max_steps"} & params.keys():
            usage = command.get_usage(click.Context(command, info_name=title))
            assert f"{title} [OPTIONS] [RUN]" in " ".join(usage.split())
