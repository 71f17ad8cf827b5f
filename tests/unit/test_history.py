"""The checkpoints of a run, as `trainerd checkpoints` shows them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import Cli
from trainerd.checkpoints import manifest
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.format import sstable
from trainerd.checkpoints.manifest import FileRecord, Manifest
from trainerd.cli.commands.history.checkpoints import table
from trainerd.history.timeline import CheckpointMark, timeline
from trainerd.rundir.paths import RunDirectory

BEST = {"config.checkpoint.best": "min loss", "config.checkpoint.keep_best": "2"}


def add(rundir: RunDirectory, step: int, fingerprint: Mapping[str, str] | None = None, **metrics: float) -> Manifest:
    """A checkpoint's manifest; its files are not looked at."""
    rundir.path.mkdir(parents=True, exist_ok=True)
    files = {f"model.ckpt-{step}.index": FileRecord(1000 + step, "0" * 32)}
    made = Manifest("schedule", metrics, 0.0, dict(fingerprint or {}), step=step, at=1e9 + step, files=files)
    rundir.manifest(step).write_bytes(made.to_bytes())
    return made


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


def marks(rundir: RunDirectory) -> dict[int, tuple[CheckpointMark, ...]]:
    return {entry.step: entry.marks for entry in timeline(rundir)}


def test_the_newest_is_the_last_and_says_so(rundir: RunDirectory) -> None:
    for step in (100, 9, 20):
        add(rundir, step, loss=step / 10)
    found = timeline(rundir)
    assert [(each.step, each.bytes, each.at, each.reason) for each in found] == [
        (step, 1000 + step, 1e9 + step, "schedule") for step in (9, 20, 100)
    ]
    assert found[-1].metrics == {"loss": 10.0} and found[-1].path == rundir.prefix(100)
    assert marks(rundir) == {9: (), 20: (), 100: (CheckpointMark.LATEST, CheckpointMark.RESUMES_HERE)}


def test_nothing_is_there_before_the_first(rundir: RunDirectory) -> None:
    assert timeline(rundir) == []


def test_a_run_that_went_back_has_left_what_is_later(rundir: RunDirectory) -> None:
    for step in (10, 20, 30):
        add(rundir, step)
    rundir.checkpoint_state.write_bytes(StateFile(10, (10, 20, 30)).to_bytes(rundir.basename))
    assert marks(rundir) == {
        10: (CheckpointMark.RESUMES_HERE,),
        20: (CheckpointMark.LEFT_BEHIND,),
        30: (CheckpointMark.LATEST, CheckpointMark.LEFT_BEHIND),
    }


def test_the_best_are_those_that_retention_keeps(rundir: RunDirectory) -> None:
    for step, loss in ((10, 3.0), (20, 1.0), (30, 1.0), (40, 2.0), (50, math.nan)):
        add(rundir, step, BEST, loss=loss)
    best = [step for step, found in marks(rundir).items() if CheckpointMark.BEST in found]
    assert best == [20, 40], "of equals the oldest; what is no number is none"


def test_the_cause_is_named_if_there_is_no_best(cli: Cli, rundir: RunDirectory) -> None:
    command = ["export", "best", "out", "--logdir", str(rundir.path)]
    rundir.create()
    assert "no checkpoints" in cli(*command)[1]
    add(rundir, 10, accuracy=1.0)
    assert "the config names no `best`" in cli(*command)[1]
    add(rundir, 20, BEST, accuracy=1.0)
    assert "no checkpoint has a number for 'loss'. Metrics: accuracy" in cli(*command)[1]
    code, text = cli("export", "newest", *command[2:])
    assert code == 64 and "expected a step, `best` or `minimum`" in text and "leave STEP out" in text


@pytest.mark.parametrize("wrong", [{"config.checkpoint.best": "least loss"}, {"config.checkpoint.keep_best": "many"}])
def test_a_fingerprint_that_says_no_best_marks_none(rundir: RunDirectory, wrong: dict[str, str]) -> None:
    add(rundir, 10, BEST | wrong, loss=1.0)
    assert CheckpointMark.BEST not in marks(rundir)[10]


def test_pinned_damaged_and_quarantined_are_marked(rundir: RunDirectory) -> None:
    for step in (10, 20, 30):
        add(rundir, step)
    rundir.pin(10).touch()
    rundir.manifest(30).write_text("{")
    for folder in (rundir.quarantine, rundir.quarantine / "2"):
        add(RunDirectory(folder), 15)
    (rundir.quarantine / "3").symlink_to(rundir.path)
    found = [(entry.step, entry.marks) for entry in timeline(rundir)]
    assert found == [
        (10, (CheckpointMark.PINNED,)),
        (15, (CheckpointMark.QUARANTINED,)),
        (15, (CheckpointMark.QUARANTINED,)),
        (20, (CheckpointMark.LATEST, CheckpointMark.RESUMES_HERE)),
        (30, (CheckpointMark.DAMAGED,)),
    ]


def test_the_table_fits_the_terminal(rundir: RunDirectory) -> None:
    metrics = {f"metric {number}": float(number) for number in range(30)}
    add(rundir, 10, None, **metrics)
    add(rundir, 2_000_000, None, **{**metrics, "two\nlines": 1.0})
    rundir.manifest(10).write_bytes(replace(manifest.read(rundir.manifest(10)), metrics={}).to_bytes())
    for width in (80, 120, 200):
        lines = table(timeline(rundir), width).splitlines()
        assert len(lines) == 4 and all(len(line) <= width for line in lines[:3])
        assert lines[0].split()[:4] == ["step", "when", "size", "reason"] and lines[3].startswith(
            "Metrics that do not fit: "
        )
        assert lines[2].startswith("2,000,000") and lines[2].endswith("latest, resumes here")
    whole = table(timeline(rundir), None).splitlines()
    assert len(whole) == 3 and "metric 29" in whole[0] and "two lines" in whole[0]


def test_the_command(cli: Cli, rundir: RunDirectory) -> None:
    code, text = cli("checkpoints", "--logdir", str(rundir.path))
    assert code == 69 and "does not exist. `trainerd list` shows your runs." in text
    rundir.create()
    rundir.log.touch()
    assert "has no checkpoints yet" in cli("checkpoints", "--logdir", str(rundir.path))[1]
    add(rundir, 10, loss=math.nan)
    add(rundir, 20, loss=0.5)
    code, text = cli("checkpoints", "--logdir", str(rundir.path))
    assert code == 0 and text.splitlines()[2].split()[-4:] == ["0.5", "latest,", "resumes", "here"]
    code, text = cli("checkpoints", "--logdir", str(rundir.path), "--json")
    found = json.loads(text)
    assert [each["step"] for each in found] == [10, 20] and found[0]["metrics"] == {"loss": None}
    assert found[1]["marks"] == ["latest", "resumes here"] and found[1]["path"] == str(rundir.prefix(20))


def test_a_large_shuffle_buffer_is_shown(cli: Cli, rundir: RunDirectory) -> None:
    iterator = b"\x08\x15\x12\x05\x12\x03\x08\x91'(\x8c\xf2\xf5\x02\x35\x00\x01\x02\x03"  # as TensorFlow writes it
    variable = b"\x08\x01\x12\x05\x12\x03\x08\xe8\x07 \x8c\xf2\xf5\x02(\xa0\x1f\x35\x00\x01\x02\x03"
    for step, index in {
        10: b"none",
        20: sstable.write({b"": b"header", b"iterator": iterator, b"v": variable}),
    }.items():
        found = add(rundir, step)
        large = replace(found, files={rundir.index(step).name: FileRecord(7 << 20, "0" * 32)})
        rundir.manifest(step).write_bytes(large.to_bytes())
        rundir.index(step).write_bytes(index)
    code, text = cli("checkpoints", "--logdir", str(rundir.path))
    assert code == 0 and text.split()[:5] == ["step", "when", "size", "input", "reason"]
    assert "7.0 MiB           schedule" in text and "7.0 MiB  5.8 MiB  schedule" in text
    found_json = json.loads(cli("checkpoints", "--logdir", str(rundir.path), "--json")[1])
    assert [each["input_bytes"] for each in found_json] == [0, 6_125_836]


@pytest.mark.no_cover  # which takes as long again
def test_two_thousand_are_read_in_a_second(rundir: RunDirectory) -> None:
    """A fifth of that is what docs/benchmarks.md measures; a busy machine takes longer."""
    content = add(rundir, 2_000, {f"config.key{n}": "value" for n in range(30)}, loss=1.0)
    for step in range(1, 2_000):
        rundir.manifest(step).write_bytes(replace(content, step=step).to_bytes())
    took = list[float]()
    for _ in range(3):
        begun = time.process_time()
        assert len(table(timeline(rundir), 100).splitlines()) == 2_001
        took.append(time.process_time() - begun)
    assert min(took) < 1
