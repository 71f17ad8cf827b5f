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
    for run in ("digits", "mnist", "runs/digits", "runs/first", "runs/second"):
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
