"""`trainerd history`, of runs whose figures and files are odd."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary

from tests.unit.conftest import Cli
from tests.unit.test_rollback import write
from trainerd.history import plots
from trainerd.history.curves import read_curve
from trainerd.history.lines import Line
from trainerd.history.story import MomentKind, StoryMoment, story_of
from trainerd.rundir.paths import RunDirectory


def add(
    rundir: RunDirectory, name: str, begin: int, losses: Mapping[int, float], tag: str = "loss", at: float = 0.0
) -> None:
    """An event file of one process. Checksums are not looked at."""
    events = [Event(step=begin + 1, wall_time=at, session_log=SessionLog(status=SessionLog.START))]
    for step, value in losses.items():
        events.append(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])))
    records = [(each, each.SerializeToString()) for each in events]
    content = b"".join(struct.pack("<QI", len(data), 0) + data + b"\0" * 4 for _, data in records)
    (rundir.path / f"events.out.tfevents.{name}").write_bytes(content)


def test_what_was_trained_again_is_not_there_twice_and_a_crash_is_reported(rundir: RunDirectory) -> None:
    write(rundir, 20)
    add(rundir, "1", 0, dict.fromkeys(range(10, 60, 10), 1.0))
    add(rundir, "2", 20, dict.fromkeys(range(30, 50, 10), 2.0))
    add(rundir, "3", 20, {30: 0.5}, tag="val_loss")
    story = story_of(rundir)
    assert [*zip(story.curve.steps, story.curve.values, strict=True)] == [(10, 1.0), (20, 1.0)]
    assert [(moment.step, moment.said) for moment in story.moments if moment.kind is MomentKind.CRASH] == [
        (20, "lost: 30 steps"),
        (20, "lost: 20 steps"),
    ]
    assert story.steps_of(MomentKind.CHECKPOINT) == [20] and story.steps_of(MomentKind.EVALUATION) == [30]


def test_a_file_that_ends_in_zeros_is_read_as_far_as_it_goes(rundir: RunDirectory) -> None:
    """As after a power failure; a file of a terabyte that a job makes has no end."""
    add(rundir, "1", 0, {1: 1.0, 2: 0.5})
    [path] = rundir.path.glob("events.out.tfevents.*")
    os.truncate(path, 1 << 40)
    assert read_curve(rundir, "loss").steps == [1, 2]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("fall", [0.0, 0.01])
def test_many_evaluations_do_not_cover_the_curve(rundir: RunDirectory, log: bool, fall: float) -> None:
    losses = {step: math.exp(-fall * step) for step in range(400)}
    add(rundir, "1", 0, losses)
    for step in losses:
        rundir.evaluations(step).touch()
    story = story_of(rundir)
    assert len(story.steps_of(MomentKind.EVALUATION)) == 400
    drawn = plots.in_terminal(story, 100, 30, log=log)
    curve = {column for line in drawn.splitlines() for column, sign in enumerate(line) if "\u2800" < sign < "\u2900"}
    assert len(curve) > 50, drawn
    assert ["0", "100", "200", "299", "399"] in [line.split() for line in drawn.splitlines()], "steps are whole numbers"
    assert sum("eeeeeee" in line for line in drawn.splitlines()) == 1


@pytest.mark.parametrize("log", [False, True])
def test_no_sign_covers_another_and_the_legend_names_each_once(rundir: RunDirectory, log: bool) -> None:
    add(rundir, "1", 0, {step: math.exp(-0.01 * step) for step in range(400)})
    kinds = [MomentKind.MINIMUM, MomentKind.ROLLBACK, MomentKind.CHANGE, MomentKind.BEST, MomentKind.PAUSE]
    moments = [StoryMoment(kind, 200 + number % 2) for number, kind in enumerate(kinds)]
    story = replace(story_of(rundir), moments=moments)
    *plot, legend = plots.in_terminal(story, 100, 30, log=log).splitlines()
    assert legend.split("   ") == ["⠒ loss, smoothed", "v minimum", "* best", "P pause", "< rollback", "! change"]
    assert [sum(sign in line for line in plot) for sign in "v<!*P"] == [1] * 5, "\n".join(plot)
    for narrow in plots.in_terminal(story, 60, 30, log=log).splitlines():
        assert len(narrow) <= 60


def test_what_the_run_went_back_from_is_drawn(rundir: RunDirectory, tmp_path: Path) -> None:
    write(rundir, 20)
    Line(1, 20, 60, at=100.0, target=20).write(rundir)
    add(rundir, "1", 0, {step: float(step) for step in range(10, 70, 10)}, at=50.0)
    add(rundir, "2", 20, {30: 1.0, 40: 0.5}, at=150.0)
    story = story_of(rundir, points=1)
    assert story.curve.steps == [10, 20, 30, 40]
    assert story.left == [[(step, float(step)) for step in (30, 40, 50, 60)]]
    assert "· before a rollback" in plots.in_terminal(story, 100, 30)
    plots.as_picture(story, tmp_path / "x.svg")
    assert "before a rollback" in (tmp_path / "x.svg").read_text()


def test_smoothing_begins_at_the_first_value(rundir: RunDirectory) -> None:
    add(rundir, "1", 0, {1: 4.0, 2: math.nan, 3: 4.0, 4: 0.0})
    smoothed = read_curve(rundir, "loss").smoothed(2.0)
    assert smoothed[:3] == [4.0, 4.0, 4.0] and 0 < smoothed[3] < 4.0


@pytest.mark.parametrize(
    ("losses", "options", "code"),
    [
        ({10: 1.0}, [], 0),
        ({10: 1.0}, ["--log"], 0),
        ({10: math.nan, 20: 1.0}, [], 0),
        ({10: math.nan, 20: math.inf}, [], 64),
        ({10: -1.0, 20: 0.0}, ["--log"], 64),
        ({10: -1.0, 20: 1.0}, ["--log"], 0),
        ({10: math.nan}, ["--log", "--image", "x.png"], 64),
        ({10: 1.0}, ["--image", "x.jpg"], 64),
        ({10: 1.0, 20: 0.5}, ["--image", "x.svg"], 0),
        ({}, [], 69),
        ({10: 1.0}, ["--metric", "other"], 69),
    ],
)
def test_every_curve_is_drawn_or_refused(
    cli: Cli, tmp_path: Path, losses: dict[int, float], options: list[str], code: int
) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    write(rundir, 10, 20)
    add(rundir, "1", 0, losses)
    found, printed = cli("history", "--logdir", "run", *options)
    assert found == code, printed
    assert (tmp_path / "x.svg").exists() == ("x.svg" in options)


def test_json_has_no_nan(cli: Cli, tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    add(rundir, "1", 0, {10: math.nan, 20: math.inf, 30: 1.0})
    code, printed = cli("history", "--logdir", "./run", "--json")
    assert code == 0
    points = json.loads(printed, parse_constant=lambda name: pytest.fail(name))["points"]
    assert points == [[10, None, None], [20, None, None], [30, 1.0, 1.0]]


def test_what_is_planted_is_neither_followed_nor_waited_for(cli: Cli, tmp_path: Path) -> None:
    rundir = RunDirectory(tmp_path / "run")
    rundir.create()
    os.mkfifo(rundir.path / "events.out.tfevents.1")
    code, printed = cli("history", "--logdir", "run")
    assert code == 74 and "FIFO" in printed
    (rundir.path / "events.out.tfevents.1").unlink()
    with (rundir.path / "events.out.tfevents.2").open("wb") as file:
        file.write(struct.pack("<QI", 1 << 40, 0))
        file.truncate(1 << 41)
    assert cli("history", "--logdir", "./run")[0] == 69
