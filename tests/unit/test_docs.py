"""The documentation is true: every key, code, signal and field is on its page, and every link leads somewhere.

The tables between `<!-- keys: … -->` and `<!-- end -->` are made from the code. After a change of the code,

    .venv/bin/python -m tests.unit.test_docs

writes them anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin
from urllib.parse import unquote

import click
import pytest
from msgspec import Meta

from tools.site import pages
from trainerd.agent.entry import QueueEntry
from trainerd.agent.progress import Stage
from trainerd.agent.settings import AgentSettings
from trainerd.agent.shown import ShownEntry
from trainerd.cli.app import COMMANDS, cli
from trainerd.config import parse, schema, tables
from trainerd.daemon import log_handlers
from trainerd.errors import NotRunningError, every_class
from trainerd.job.definition import GraphJob, Job, KerasJob
from trainerd.loop.signals.handlers import HANDLED
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Answer, EvaluationSummary, Failure, LastCheckpoint, Phase, State, WorkerState
from trainerd.system.gpus import DeviceState
from trainerd.watch import settings

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "trainerd").rglob("*.md")])
CONFIG, JOBS, KERAS, SYSTEMD = (DOCS / f"{name}.md" for name in ("config", "jobs", "keras", "systemd"))
SEVERAL_RUNS = DOCS / "guides" / "several-runs.md"
EXIT_CODES, RUN_DIRECTORY, JSON = (DOCS / f"{name}.md" for name in ("exit-codes", "run-directory", "json-output"))
README_LINES = 130

FENCE = re.compile(
    r"^ *(?P<mark>```+)(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^ *(?P=mark)\s*?$", re.MULTILINE | re.DOTALL
)
BLOCK = re.compile(r"(<!-- (keys|exit codes): ([\w ]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path, *languages: str) -> list[str]:
    """The text of a page's fenced blocks in these languages."""
    return [textwrap.dedent(match["text"]) for match in FENCE.finditer(read(path)) if match["language"] in languages]


def section(path: Path, heading: str) -> str:
    """What stands under a heading, down to the next one of its level or above."""
    text = FENCE.sub(lambda m: re.sub(r"^#", " #", m[0], flags=re.MULTILINE), read(path))
    start = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert start, f"{name(path)} has no heading {heading!r}"
    end = re.compile(rf"^#{{1,{len(start[1])}}} ", re.MULTILINE).search(text, start.end())
    return text[start.end() : end.start() if end else len(text)]


def first_cells(text: str) -> list[str]:
    """What is in backticks in the first cell of each row of the tables in a text."""
    rows = re.findall(r"^\| (?!-)([^|]*) \|", text, re.MULTILINE)
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


# ---------------------------------------------------------------------- tables that are made from the code


def plain_type(kind: Any) -> str:
    """A key's type in words."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(plain_type(part) for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is Literal:
        return " or ".join(f'`"{choice}"`' for choice in get_args(kind))
    bounds = [m for m in getattr(kind, "__metadata__", ()) if isinstance(m, Meta)]
    least = next((m.ge for m in bounds if m.ge is not None), None)
    base = get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
    if get_origin(base) is Mapping:
        return "table"
    if get_origin(base) is tuple:
        return f"list of {plain_type(get_args(base)[0]).partition(',')[0]}s"
    words = {int: "whole number", float: "number", str: "string", bool: "`true` or `false`"}[base]
    return words if least is None else f"{words}, {least} or more"


def plain_default(value: Any) -> str:
    """A key's default as one writes it in TOML."""
    if value is MISSING:
        return "must be given"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value:g}`"


def keys_of(table: str) -> list[tuple[str, Any, Any]]:
    """The keys of one table of the config; "top" for those in none, "agent" for those of agent.toml."""
    if table == "agent":
        return tables.keys_of(AgentSettings)
    found = [(key.rpartition("."), kind, field) for key, kind, field in schema.every_key()]
    return [(parts[2], kind, field) for parts, kind, field in found if (parts[0] or "top") == table]


def key_table(table: str) -> str:
    """The keys of one table of the config, for its page."""
    rows = ["| key | type | unit | default | what it does |", "|---|---|---|---|---|"]
    for key, kind, field in keys_of(table):
        unit, text = field.metadata["unit"], field.metadata["text"].replace("|", "\\|")
        anchor = key if table == "top" else f"{table}.{key}"
        cell = f'<a id="{anchor}"></a>[`{key}`](#{anchor})'
        default = None if field.default_factory is not MISSING else field.default
        rows.append(f"| {cell} | {plain_type(kind)} | {unit} | {plain_default(default)} | {text} |")
    return "\n".join(rows) + "\n"


def exit_code_table() -> str:
    """The exit codes, for their page."""
    summaries: dict[int, list[str]] = {0: ["what was asked for is done; a run is paused or finished"]}
    for cls in every_class():
        if cls.__module__ == "trainerd.errors":
            summaries.setdefault(cls.exit_code, []).append(cls.summary)
    rows = [f"| {code} | {'; '.join(found)} |" for code, found in sorted(summaries.items())]
    return "\n".join(["| code | what happened |", "|---|---|", *rows]) + "\n"


def with_tables(page: str) -> str:
    """A page with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        table = key_table(match[3]) if match[2] == "keys" else exit_code_table()
        return f"{match[1]}{table}{match[5]}"

    return BLOCK.sub(made, page)


@pytest.mark.parametrize("path", [CONFIG, EXIT_CODES, SEVERAL_RUNS], ids=name)
def test_tables_are_what_the_code_says(path: Path) -> None:
    assert read(path) == with_tables(read(path)), "run `.venv/bin/python -m tests.unit.test_docs`"


def test_every_table_of_the_config_is_on_its_page() -> None:
    found = {key.rpartition(".")[0] or "top" for key, _, _ in schema.every_key()}
    assert {match[3] for match in BLOCK.finditer(read(CONFIG))} == found


def test_the_exit_codes_are_on_their_page() -> None:
    assert [match[2] for match in BLOCK.finditer(read(EXIT_CODES))] == ["exit codes"]


# ---------------------------------------------------------------------- commands


def command_of(title: str) -> click.Command:
    command = cli.get_command(click.Context(cli), title)
    assert command is not None
    return command


def command_lines(text: str) -> Iterator[str]:
    """The `trainerd` commands of a shell block, without what they are piped to and the remarks behind them."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|;|\||\s>\s.*|(?:^|\s)#.*", line):
            words = part.strip().removeprefix("$ ").removeprefix("sudo ")
            if re.match(r"(\S*/)?trainerd(\s|$)", words):
                yield words


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_command_lines_in_shell_blocks_are_such_as_trainerd_takes(path: Path) -> None:
    for block in blocks(path, "sh", "bash", "console"):
        for line in command_lines(block):
            parse_command_line(line)


def parse_command_line(line: str) -> None:
    """Have click parse a command line, and run nothing.

    Raises:
      click.UsageError: it is not one.
    """
    words = shlex.split(line)[1:]
    if not words or words[0].startswith("-"):
        cli.make_context("trainerd", words or ["--help"], resilient_parsing=True)
        return
    assert words[0] in COMMANDS, f"there is no command for {line!r}"
    with contextlib.suppress(NotRunningError):  # the run of an example is not here
        command_of(words[0]).make_context(words[0], words[1:])


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_commands_that_a_text_names_exist(path: Path) -> None:
    named = set(re.findall(r"`trainerd ([a-z]+)", FENCE.sub("", read(path))))
    assert named <= set(COMMANDS), named - set(COMMANDS)


# ---------------------------------------------------------------------- signals, files, fields


def test_signals_are_those_that_are_handled() -> None:
    named = {cell for cell in first_cells(section(EXIT_CODES, "Signals and files")) if cell.startswith("SIG")}
    assert named == {number.name for number in HANDLED}


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("state.json", list(State().to_json())),
        ("evaluations", [f.name for f in dataclasses.fields(EvaluationSummary)]),
        ("last_checkpoint", [f.name for f in dataclasses.fields(LastCheckpoint)]),
        ("failure", [f.name for f in dataclasses.fields(Failure)]),
        ("devices", [f.name for f in dataclasses.fields(DeviceState)]),
        ("workers", [f.name for f in dataclasses.fields(WorkerState)]),
        ("answer", [f.name for f in dataclasses.fields(Answer)]),
        ("phase", [str(phase) for phase in Phase]),
    ],
)
def test_the_fields_of_the_state_are_on_their_page(heading: str, fields: list[str]) -> None:
    text = section(JSON, heading).split("\n###")[0]
    assert sorted(first_cells(text)) == sorted(fields)


def test_the_fields_of_the_queue_are_on_their_page() -> None:
    row = next(line for line in read(JSON).splitlines() if line.startswith("| `trainerd queue --json`"))
    shown = ShownEntry("a", QueueEntry(config="", logdir="", folder=""), Stage.WAITING)
    assert set(re.findall(r"`([^`]+)`", row)) >= {*shown.to_json(), *map(str, Stage)}


def test_the_files_of_a_run_directory_are_on_their_page(tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path)
    named = first_cells(read(RUN_DIRECTORY))
    paths = (rundir.lock, rundir.state, rundir.pause, rundir.save, rundir.log, rundir.checkpoint_state)
    for path in paths:
        assert path.name in named
    for start in (f"{rundir.basename}-N", f"{rundir.quarantine.name}/", ".saving-N/"):
        assert any(cell.startswith(start) for cell in named), start


def test_the_fields_of_the_journal_are_on_their_page() -> None:
    named = first_cells(section(SYSTEMD, "The journal"))
    assert {field.upper() for field in log_handlers.FIELDS} <= set(named)


def test_the_fields_of_a_job_are_on_their_page() -> None:
    assert first_cells(section(JOBS, "What a job has")) == [f.name for f in dataclasses.fields(Job)]
    assert first_cells(section(JOBS, "A TensorFlow 1 graph")) == [f.name for f in dataclasses.fields(GraphJob)]
    assert first_cells(section(KERAS, "A KerasJob")) == [f.name for f in dataclasses.fields(KerasJob)]


# ---------------------------------------------------------------------- links and blocks


@dataclass(frozen=True)
class Link:
    """A link of a page to a file or a heading here."""

    path: Path
    anchor: str


def links(page: Path) -> list[Link]:
    """The links of a page, but those to other places of the web."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", read(page)))
    targets = re.findall(r"\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    found = []
    for target in targets:
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = unquote(target).partition("#")
            found.append(Link((page.parent / path).resolve() if path else page, anchor))
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of a page: those that it writes out, and those of its headings, as GitHub makes them."""
    found: set[str] = set(re.findall(r'<a id="([^"]+)">', read(page)))
    for heading in re.findall(r"^#+ +(.+?) *#*$", FENCE.sub("", read(page)), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (anchor := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(anchor)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        assert link.path.is_relative_to(ROOT) and link.path.exists(), f"{name(page)} links to {link.path}"
        if link.anchor:
            assert link.anchor in anchors(link.path), f"{name(page)} links to #{link.anchor} of {name(link.path)}"


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r'"([^"]+\.md)"', read(ROOT / "zensical.toml")))
    assert {str(pages.place(page)) for page in DOCS.rglob("*.md")} <= named


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_toml_blocks_are_configs_or_parts_of_one(path: Path) -> None:
    for block in blocks(path, "toml"):
        data = tomllib.loads(block)
        if set(data) <= {"watch", "page", "interruptions"}:
            settings.parse(data)
            continue
        if set(data) <= {f.name for f in dataclasses.fields(AgentSettings)}:
            assert (found := tables.Tables(AgentSettings)).read(data), found.mistakes
            continue
        whole = data if "entry" in data else {"entry": "job:job", "logdir": "runs/a", **data}
        parse.parse(whole)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_python_blocks_are_python(path: Path) -> None:
    for block in blocks(path, "python"):
        # In a function, because a part of one may return.
        compile("def example():\n" + textwrap.indent(block, "    "), name(path), "exec")


def test_the_readme_is_short() -> None:
    lines = read(ROOT / "README.md").splitlines()
    assert len(lines) <= README_LINES
    assert "make run" in "\n".join(lines[:30]), "the command that shows it all is on the first screen"


@pytest.mark.parametrize("path", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=name)
def test_pages_have_one_title_and_lines_that_end(path: Path) -> None:
    text = FENCE.sub("", read(path))
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    assert read(path).endswith("\n") and not re.search(r"[ \t]+$", read(path), re.MULTILINE)


# ---------------------------------------------------------------------- what ships


def test_the_configs_that_ship_have_valid_keys_those_in_comments_too() -> None:
    for path in (ROOT / "trainerd" / "examples").rglob("*.toml"):
        text = read(path)
        parse.parse(tomllib.loads(text))
        parse.parse(tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)))


def test_the_license_is_the_one_that_is_declared() -> None:
    text = read(ROOT / "LICENSE")
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert "license_expression = Apache-2.0" in read(ROOT / "setup.cfg")


if __name__ == "__main__":
    for generated in (CONFIG, EXIT_CODES, SEVERAL_RUNS):
        generated.write_text(with_tables(read(generated)), encoding="utf-8")
