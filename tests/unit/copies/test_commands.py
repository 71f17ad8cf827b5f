"""What the commands say of a copy."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import Cli
from tests.unit.copies.stores import (
    THERE,
    MemoryStore,
    copied,
    identified,
    run_of,
)
from tests.unit.test_rollback import back, write
from trainerd.checkpoints import manifest as manifests
from trainerd.cli import requests
from trainerd.cli.commands.copies import move
from trainerd.copies import process
from trainerd.copies.layout import RunCopy
from trainerd.copies.process import copy_once, only_copier, writer_of
from trainerd.copies.status import CopyStatus, read_copy_status
from trainerd.copies.store import FolderStore
from trainerd.rundir.lock import Holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import LastCheckpoint, Phase, State


def test_the_status_says_what_is_copied(rundir: RunDirectory, store: MemoryStore) -> None:
    status = read_copy_status(rundir)
    assert status is not None
    at = manifests.read(rundir.manifest(30)).at
    newest, newer = (LastCheckpoint(step, "", "", None, 0, at) for step in (30, 40))
    assert not status.is_behind(newest) and status.is_behind(newer) and not status.is_behind(None)
    assert status.line(newest, at + 60) == "step 30, 60 s old; to memory"
    assert status.line(newer, at + 60) == "step 30, 60 s old; step 40 is not copied yet; to memory"
    sending = replace(status, sending=40, sent_bytes=1, total_bytes=4)
    assert "; sending step 40 (25 %); to memory" in sending.line(newer, at)
    assert CopyStatus(to="s3://b/c").line(newest, at) == "no checkpoint yet; step 30 is not copied yet; to s3://b/c"


@pytest.mark.parametrize(
    "fields",
    [
        {"step": 5},
        {"step": 5, "copied": {"5": 10**400}},
        {"copied": {"5": 1.0}},
        {"at": 1e300},
        {"sent_bytes": -(10**30)},
    ],
)
def test_a_status_that_no_copier_wrote_is_none(rundir: RunDirectory, fields: dict[str, object]) -> None:
    rundir.copy.write_text(json.dumps({"to": "s3://b/c"}))
    assert read_copy_status(rundir) is not None
    rundir.copy.write_text(json.dumps({"to": "s3://b/c", **fields}))
    assert read_copy_status(rundir) is None


def test_status_and_checkpoints_show_the_copy(cli: Cli, rundir: RunDirectory, store: MemoryStore) -> None:
    write(rundir, 40)
    logdir = str(rundir.path)
    assert "copied  step 30, " in cli("status", logdir)[1]
    assert json.loads(cli("status", logdir, "--json")[1])["copy"]["step"] == 30
    shown = json.loads(cli("checkpoints", logdir, "--json")[1])
    assert ["copied" in entry["marks"] for entry in shown] == [True, True, True, False]
    back(rundir, 10)
    write(rundir, 20, value=5.0)
    shown = json.loads(cli("checkpoints", logdir, "--json")[1])
    of_this_line = [entry for entry in shown if entry["line"] is None]
    assert ["copied" in entry["marks"] for entry in of_this_line] == [True, False], "another one of step 20 is copied"
    saved = LastCheckpoint(20, "", "", None, 0, 0.0)
    State(Phase.PAUSED, run_id="r1", last_checkpoint=saved).write(rundir.state)
    assert "step 20 is not copied yet" in cli("status", logdir)[1]
    copied(rundir, store)
    assert "is not copied yet" not in cli("status", logdir)[1]


def test_a_move_needs_a_paused_run_and_frees_the_copy(cli: Cli, rundir: RunDirectory, tmp_path: Path) -> None:
    write(rundir, 10)
    identified(rundir)
    url, logdir = (tmp_path / "nas").as_uri(), str(rundir.path)
    code, text = cli("move", logdir, url)
    assert code == 69 and "the run is not paused: it ended while training, without a save" in text
    State(Phase.PAUSED, run_id="r1").write(rundir.state)
    code, text = cli("move", logdir, url)
    assert code == 0 and f"trainerd fetch {url} run" in text and rundir.manifest(10).exists()
    with contextlib.closing(RunCopy(FolderStore(tmp_path / "nas"), url)) as copy:
        about = copy.about()
        assert about is not None and about.writer is None
        copy_once(run_of(rundir, writer=THERE), copy)
    assert cli("move", logdir, url)[0] == 75


@pytest.mark.parametrize("is_training", [False, True])
def test_a_move_that_another_copier_stops_says_that_it_has_paused_the_run(
    cli: Cli, rundir: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_training: bool
) -> None:
    State(Phase.PAUSED, run_id="r1").write(rundir.state)

    def no_patience(rundir: RunDirectory, *patience: object) -> contextlib.AbstractContextManager[None]:
        return only_copier(rundir)

    monkeypatch.setattr(move, "only_copier", no_patience)
    monkeypatch.setattr(move, "read_holder", lambda rundir: Holder(1, 0.0, 0.0) if is_training else None)
    monkeypatch.setattr(requests, "wait_for_end", lambda holder: None)
    with only_copier(rundir):
        code, text = cli("move", str(rundir.path), (tmp_path / "nas").as_uri())
    assert code == 75 and "One that the trainer started ends after the run. Then run" in text
    resumes = rf"the run is paused, and is not moved. `.* start --logdir {rundir.path}` resumes it here\."
    assert bool(re.search(resumes, text)) == is_training, text


def test_a_move_waits_for_the_copier_as_long_as_it_sends(
    cli: Cli, rundir: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(rundir, 10)
    State(Phase.PAUSED, run_id="r1").write(rundir.state)
    CopyStatus("s3://b/c", sending=10).write(rundir)
    copier, looks = contextlib.ExitStack(), list[RunDirectory]()
    copier.enter_context(only_copier(rundir))

    def look(rundir: RunDirectory) -> CopyStatus | None:
        looks.append(rundir)
        if len(looks) == 3:
            copier.close()
        return read_copy_status(rundir)

    monkeypatch.setattr(move, "PATIENCE_SECS", 0.2)
    monkeypatch.setattr(process, "read_copy_status", look)
    code, text = cli("move", str(rundir.path), (tmp_path / "nas").as_uri())
    assert code == 0 and text.count("waits for the process that copies step 10") == 1 and len(looks) == 3


def test_without_a_checkpoint_nothing_is_moved_and_a_copy_says_so(
    cli: Cli, rundir: RunDirectory, tmp_path: Path
) -> None:
    State(Phase.PAUSED, run_id="r1").write(rundir.state)
    url, logdir = (tmp_path / "nas").as_uri(), str(rundir.path)
    code, text = cli("copy", logdir, "--to", url, "--once")
    assert code == 0 and f"copied the files of the run to {url}, and no checkpoint" in text
    code, text = cli("move", logdir, url)
    assert code == 69 and "has no whole checkpoint: the run is copied, and not moved. Start it" in text
    with contextlib.closing(RunCopy(FolderStore(tmp_path / "nas"), url)) as copy:
        about = copy.about()
        assert about is not None and about.writer is not None, "the copy stays this machine's"


def test_a_move_does_not_take_an_old_copy_of_the_step_for_the_step(
    cli: Cli, rundir: RunDirectory, tmp_path: Path
) -> None:
    write(rundir, 10, 20)
    identified(rundir)
    url = (tmp_path / "nas").as_uri()
    copy_once(run_of(rundir, writer=writer_of(rundir)), RunCopy(FolderStore(tmp_path / "nas"), url))
    back(rundir, 10)
    write(rundir, 20, value=5.0)
    (rundir.path / "model.ckpt-20.data-00000-of-00001").write_bytes(b"5.1")
    saved = LastCheckpoint(20, "", "", None, 0, 0.0)
    State(Phase.PAUSED, run_id="r1", last_checkpoint=saved).write(rundir.state)
    code, text = cli("move", str(rundir.path), url)
    assert code == 65 and "the checkpoint of step 20 is damaged: the run is copied, and not moved" in text


def test_the_commands_say_what_is_wrong(cli: Cli, rundir: RunDirectory, tmp_path: Path) -> None:
    write(rundir, 10)
    identified(rundir)
    logdir = str(rundir.path)
    code, text = cli("copy", logdir, "--once")
    assert code == 78 and "nothing says where this run is copied to" in text
    code, text = cli("copy", logdir, "--once", "--to", "s3://a:b@c/d")
    assert code == 64 and "--to: the URL may not hold credentials" in text
    url = (tmp_path / "nas").as_uri()
    code, text = cli("copy", logdir, "--once", "--to", url)
    assert code == 0 and f"The copy at {url} is complete: 1 checkpoint, newest step 10." in text
    code, text = cli("fetch", url, "back")
    assert code == 0 and "resumes the run from step 10" in text and "were not copied" in text
    assert f" --to {url} --take-over` continues the copy from here" in text
    code, text = cli("fetch", url, "back")
    assert code == 64 and "is not empty. Fetch into a new folder" in text
    code, text = cli("fetch", url + "x", "other")
    assert code == 65 and "holds no copy of a run" in text
    assert cli("copy", str(tmp_path / "none"), "--to", url)[0] == 69


def test_a_copy_before_the_first_start_says_what_starts_the_run(cli: Cli, tmp_path: Path) -> None:
    assert cli("init", "new")[0] == 0
    code, text = cli("copy", "--config", "new/trainerd.toml", "--to", (tmp_path / "nas").as_uri())
    assert code == 69 and re.search(r"\S+ has no run yet\. `.*run --config new/trainerd\.toml` starts it", text)
