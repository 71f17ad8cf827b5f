"""`trainerd doctor`: what would go wrong with a run, before it does."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from trainerd.cli import as_owner, options
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.install.installed import service_of
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath
from trainerd.doctor import facts as known
from trainerd.doctor import systemd
from trainerd.doctor.examine import examine
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, FindingKind, in_order
from trainerd.errors import DiagnosisError
from trainerd.text import counted


@click.command(
    "doctor",
    cls=CommandWithExamples,
    examples={
        "trainerd doctor": "Diagnose the run of the current folder.",
        "trainerd doctor digits --python ../new-venv": "Rehearse an upgrade of the run `digits`.",
    },
    exits={0: "There is no problem; there may be warnings.", 70: "There is a problem."},
)
@options.of_one_argument
@click.option(
    "--python",
    metavar="VENV",
    type=GivenPath(path_type=Path),
    help="Rehearse an upgrade: train 20 steps from a copy of the newest checkpoint in this virtual environment.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, on one line.")
def command(run: options.RunOptions, python: Path | None, as_json: bool) -> None:
    """Diagnose a run: disk, file system, permissions, clock, unit, memory, memory tier, versions, GPU.

    Each problem is shown with its cure. The run directory is not changed, and TensorFlow is not imported.
    """
    config = options.config_of_run(run)
    rundir = options.find_rundir(options.RunOptions(logdir=config.rundir))
    facts = known.gather(config, rundir, service_of(config.path) if config.path is not None else None)
    if facts.service is None and facts.pid is not None:
        facts = replace(facts, service=systemd.service_of(facts.pid))
    facts = replace(facts, properties=systemd.show(facts.service))
    findings = in_order([*_rehearsed(facts, python), *examine(facts)])
    if as_json:
        say(json.dumps([finding.to_json() for finding in findings]))
    else:
        say(table(findings))
        if facts.state is None and facts.newest is None:
            say(f"Nothing has been trained in {rundir.path} yet.")
    count = sum(finding.kind is FindingKind.PROBLEM for finding in findings)
    if count:
        raise DiagnosisError(f"{counted(count, 'problem')} found in {rundir.path}.")


def _rehearsed(facts: Facts, python: Path | None) -> Iterator[Finding]:
    if python is None:
        return
    if facts.newest is not None:
        as_owner.require_own_job(facts.rundir, facts.config)
    from trainerd.doctor.upgrade.python import Python
    from trainerd.doctor.upgrade.rehearsal import rehearse

    with tempfile.TemporaryDirectory(prefix="trainerd-doctor-") as scratch:
        other = Python.find(python, Path(scratch))
    yield from (replace(each, subject="rehearsal") for each in rehearse(facts, other))


def table(findings: Sequence[Finding]) -> str:
    """Return the findings for a person: a line each, the cure in a second one, and a verdict."""
    kinds, subjects = (max(map(len, column)) for column in zip(*((f.kind, f.subject) for f in findings), strict=True))
    lines = []
    for each in findings:
        lines.append(f"{each.kind:<{kinds}}  {each.subject:<{subjects}}  {_in_a_line(each.said)}")
        if each.cure:
            lines.append(f"{'':<{kinds}}  {'':<{subjects}}  → {_in_a_line(each.cure)}")
    return "\n".join([*lines, "", _verdict(findings)])


def _in_a_line(said: str) -> str:
    return " ".join(said.split())


def _verdict(findings: Sequence[Finding]) -> str:
    counts = {kind: sum(each.kind is kind for each in findings) for kind in (FindingKind.PROBLEM, FindingKind.WARNING)}
    found = [counted(count, str(kind)) for kind, count in counts.items() if count]
    return f"{', '.join(found)}." if found else "All is well."
