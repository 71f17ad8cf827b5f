"""The store, the catalogue, retention and restore, over a session without TensorFlow."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from tests.fake import FakeSnapshot
from trainerd.checkpoints import catalogue, checkpoint_state, latest, manifest, saver_checkpoints
from trainerd.checkpoints.checkpoint_state import StateFile
from trainerd.checkpoints.manifest import About, DamagedError, FileRecord, Manifest
from trainerd.checkpoints.retention import Policy
from trainerd.checkpoints.snapshot import UnsoundError
from trainerd.checkpoints.store import CheckpointStore
from trainerd.errors import ConfigError, DataError, StorageError
from trainerd.rundir.paths import RunDirectory


def publish(rundir: RunDirectory, *steps: int, keep_last: int = 100) -> CheckpointStore:
    made = CheckpointStore(rundir, policy=Policy(keep_last))
    for step in steps:
        made.publish(FakeSnapshot(step, float(2 * step)), About("test", {"loss": 1.0 / step}))
    return made


def test_a_publish_leaves_data_manifest_and_state_file(odd_rundir: RunDirectory) -> None:
    saved = CheckpointStore(odd_rundir).publish(FakeSnapshot(7, 14.0), About("r", {"loss": float("nan")}))
    assert saved.step == 7 and saved.reason == "r" and saved.bytes > 0
    assert sorted(p.name for p in odd_rundir.path.iterdir()) == [
        "checkpoint",
        "model.ckpt-7.data-00000-of-00001",
        "model.ckpt-7.index",
        "model.ckpt-7.json",
    ]
    found = manifest.read(odd_rundir.manifest(7))
    manifest.verify(found, odd_rundir.path)
    assert found.size == saved.bytes and found.metrics["loss"] != found.metrics["loss"]
    assert 'model_checkpoint_path: "model.ckpt-7"' in odd_rundir.checkpoint_state.read_text()


def test_a_checkpoint_is_announced_before_others_are_deleted(rundir: RunDirectory) -> None:
    """A file system may take as long to delete a large file as to write it."""
    store = publish(rundir, 5)
    store.keep(Policy(1))
    seen: list[tuple[int, list[int], str]] = []
    store.publish(
        FakeSnapshot(6, 12.0),
        About("test"),
        lambda saved: seen.append((saved.step, rundir.steps(), rundir.checkpoint_state.read_text())),
    )
    [(step, there, named)] = seen
    assert step == 6 and there == [6, 5] and 'model_checkpoint_path: "model.ckpt-6"' in named
    assert rundir.steps() == [6]


def test_progress_can_be_asked_for_at_any_moment_of_a_save(rundir: RunDirectory) -> None:
    made, over = CheckpointStore(rundir, policy=Policy(2)), threading.Event()
    seen = set()

    def look() -> None:
        while not over.is_set():
            seen.add(made.progress())

    looker = threading.Thread(target=look)
    looker.start()
    for step in range(1, 5000):
        made.publish(FakeSnapshot(step, 2.0 * step), About("test"))
        if step >= 60 and len(seen) > 20:
            break
    over.set()
    looker.join()
    assert len(seen) > 20


def test_an_unsound_snapshot_leaves_nothing(rundir: RunDirectory) -> None:
    publish(rundir, 5)
    before = sorted(os.listdir(rundir.path))
    with pytest.raises(UnsoundError):
        CheckpointStore(rundir).publish(FakeSnapshot(6, float("nan")), About("r"))
    assert sorted(os.listdir(rundir.path)) == before


def test_a_state_file_that_cannot_be_written_fails_the_save_only_where_it_is_needed(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (5, 6, 7):
        publish(rundir, step)

    def fail(path: Path, content: bytes) -> None:
        assert path == rundir.checkpoint_state
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("trainerd.checkpoints.store.write_atomic", fail)
    publish(rundir, 8)
    assert f"{rundir.checkpoint_state} does not name step 8 yet: " in caplog.text
    assert catalogue.resume_order(rundir)[0] == 8
    was = rundir.manifest(6).read_bytes()
    for step in (9, 6):  # of two that it does not name a start takes neither; training went back to 5
        with pytest.raises(StorageError, match="No space"):
            publish(rundir, step)
    assert catalogue.resume_order(rundir) == [8, 7, 6, 5] and rundir.manifest(6).read_bytes() == was


@pytest.mark.parametrize("what", ["manifest", "data"])
def test_a_file_that_may_not_be_read_is_not_damage(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    publish(rundir, 5)
    publish(rundir, 6)

    def refuse(path: Path, limit: int = 0) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(manifest, "read_regular" if what == "manifest" else "xxh128", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        latest.newest_verified(rundir, CheckpointStore(rundir))
    assert rundir.steps() == [6, 5] and not rundir.quarantine.exists()


def test_what_a_killed_save_left_is_cleaned_and_nothing_else(rundir: RunDirectory) -> None:
    publish(rundir, 5)
    staging = rundir.staging(6)
    staging.mkdir()
    # Killed after the data was renamed and before the manifest was.
    record = manifest.FileRecord(1, "x")
    staged = manifest.Manifest("r", step=6, at=0.0, files={"model.ckpt-6.index": record})
    (staging / "model.ckpt-6.json").write_bytes(staged.to_bytes())
    (rundir.path / "model.ckpt-6.index").write_text("half")
    (rundir.path / "mine.txt").write_text("keep")
    (rundir.path / ".saving-notes").mkdir()
    CheckpointStore(rundir).clean()
    names = os.listdir(rundir.path)
    assert "model.ckpt-6.index" not in names and ".saving-6" not in names
    assert "mine.txt" in names and ".saving-notes" in names and "model.ckpt-5.json" in names


def test_old_checkpoints_go_with_all_their_files(rundir: RunDirectory) -> None:
    publish(rundir, 1, 2, 3, 4, keep_last=2)
    assert rundir.steps() == [4, 3]
    assert not [p for p in rundir.path.iterdir() if "ckpt-1" in p.name or "ckpt-2" in p.name]
    assert checkpoint_state.read(rundir) == StateFile(4, (3, 4))


def test_resume_order_is_newest_first(rundir: RunDirectory) -> None:
    publish(rundir, 9, 10, 100)
    assert catalogue.resume_order(rundir) == [100, 10, 9]


def test_the_newest_is_found_though_all_that_were_listed_are_deleted_meanwhile(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(rundir, 1, 2)
    real = catalogue.resume_order

    def listed(rundir: RunDirectory) -> list[int]:
        found = real(rundir)
        monkeypatch.undo()
        publish(rundir, 3, keep_last=1)
        return found

    monkeypatch.setattr(catalogue, "resume_order", listed)
    found = catalogue.newest(rundir)
    assert found is not None and found.step == 3


def test_a_hand_edited_state_file_goes_back(rundir: RunDirectory) -> None:
    publish(rundir, 10, 20, 30)
    text = rundir.checkpoint_state.read_text()
    rundir.checkpoint_state.write_text(text.replace('path: "model.ckpt-30"', 'path: "model.ckpt-20"', 1))
    assert catalogue.resume_order(rundir) == [20, 10]
    # Training goes on from there, and the next start resumes on the new line.
    publish(rundir, 25)
    assert catalogue.resume_order(rundir) == [25, 20, 10]
    # It passes a step that the old line had saved: the new one takes its place.
    publish(rundir, 30)
    assert catalogue.resume_order(rundir) == [30, 25, 20, 10]


@pytest.mark.parametrize("named", ["model.ckpt-10", "./model.ckpt-10", "{folder}/model.ckpt-10"])
@pytest.mark.parametrize("lists_itself", [False, True])
def test_a_state_file_that_a_person_rewrote_goes_back(
    rundir: RunDirectory, tmp_path: Path, named: str, lists_itself: bool, caplog: pytest.LogCaptureFixture
) -> None:
    publish(rundir, 10, 20, 30)
    link = tmp_path / "link"
    link.symlink_to(rundir.path)
    path = named.format(folder=rundir.path)
    lines = [f'model_checkpoint_path: "{path}"', f'all_model_checkpoint_paths: "{path}"']
    rundir.checkpoint_state.write_text("\n".join(lines[: 1 + lists_itself]))
    for seen in (rundir, RunDirectory(link)):
        assert catalogue.resume_order(seen) == [10]
        found = latest.newest_verified(seen, CheckpointStore(seen))
        assert found is not None and found.step == 10 and not caplog.records


def test_a_manifest_that_the_state_file_does_not_know_is_the_newest(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    publish(rundir, 10, 20)
    old = rundir.checkpoint_state.read_bytes()
    publish(rundir, 30)
    rundir.checkpoint_state.write_bytes(old)
    assert catalogue.resume_order(rundir) == [30, 20, 10]
    with caplog.at_level("INFO"):
        latest.newest_verified(rundir, CheckpointStore(rundir))
    [record] = caplog.records
    assert record.levelname == "INFO" and "names step 20; the process died before" in record.message
    assert b"ckpt-30" in rundir.checkpoint_state.read_bytes(), "the next process may die there too"
    # A person may have edited it, and deleted a line too many.
    rundir.checkpoint_state.write_bytes(StateFile(10, (10, 20)).to_bytes(rundir.basename))
    latest.newest_verified(rundir, CheckpointStore(rundir))
    assert caplog.records[-1].levelname == "WARNING" and "a later one was saved" in caplog.text


def test_a_state_file_that_this_process_may_not_read_is_no_damaged_one(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(rundir, 10, 20)

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(checkpoint_state, "read_regular", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        latest.newest_verified(rundir, CheckpointStore(rundir))


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"\xff\xfe\x00", b'model_checkpoint_path: "model.ckpt-2', b'model_checkpoint_path: "../x-1"\n'],
)
def test_a_garbled_state_file_is_not_believed(
    rundir: RunDirectory, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    publish(rundir, 10, 20)
    latest.newest_verified(rundir, CheckpointStore(rundir))
    assert not caplog.records
    rundir.checkpoint_state.write_bytes(content)
    assert catalogue.resume_order(rundir) == [20, 10]
    latest.newest_verified(rundir, CheckpointStore(rundir))
    assert f"{rundir.checkpoint_state} names no checkpoint of this run" in caplog.text
    rundir.checkpoint_state.unlink()
    assert catalogue.resume_order(rundir) == [20, 10]
    rundir.checkpoint_state.mkdir()
    assert catalogue.resume_order(rundir) == [20, 10]


def damage(path: Path, kind: str) -> None:
    """Damage a file in one of the ways in which files get damaged."""
    content = bytearray(path.read_bytes())
    if kind == "flip":
        content[len(content) // 2] ^= 1
    elif kind == "truncate":
        del content[len(content) // 2 :]
    elif kind == "zero":
        content[:] = bytes(len(content))
    elif kind == "empty":
        content.clear()
    path.unlink()
    if kind != "delete":
        path.write_bytes(content)


@pytest.mark.parametrize("kind", ["flip", "truncate", "zero", "empty", "delete"])
@pytest.mark.parametrize("suffix", [".data-00000-of-00001", ".index", ".json"])
def test_damage_to_the_newest_falls_back(rundir: RunDirectory, kind: str, suffix: str) -> None:
    made = publish(rundir, 10, 20)
    damage(rundir.path / f"model.ckpt-20{suffix}", kind)
    found = latest.newest_verified(rundir, made)
    assert found is not None and found.step == 10
    if not (kind == "delete" and suffix == ".json"):
        assert rundir.quarantine.is_dir()
        assert rundir.steps() == [10]


def test_a_manifest_that_is_nested_too_deep_is_damage(rundir: RunDirectory) -> None:
    rundir.manifest(3).write_bytes(b"[" * 200_000)
    with pytest.raises(DamagedError, match="not a manifest"):
        manifest.read(rundir.manifest(3))


def test_a_graph_that_was_deleted_is_missed_by_no_restore(
    rundir: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """TensorFlow's programs delete `.meta` to save room, and copy checkpoints without it. A damaged one is damage."""
    path = rundir.path / "model.ckpt-3.meta"
    path.write_bytes(b"graph")
    record = FileRecord.of(path)
    path.unlink()
    found = Manifest("request", step=3, at=0.0, files={path.name: record})
    manifest.verify(found, rundir.path)
    assert "model.ckpt-3.meta is missing; the checkpoint does not need it" in caplog.text
    path.write_bytes(b"grapg")
    with pytest.raises(DamagedError, match=r"model.ckpt-3.meta: its content"):
        manifest.verify(found, rundir.path)
    path.unlink()
    path.symlink_to(rundir.path / "nowhere")
    with pytest.raises(DamagedError, match=r"model.ckpt-3.meta: missing"):
        manifest.verify(found, rundir.path)


def test_a_manifest_of_another_step_is_damage(rundir: RunDirectory) -> None:
    made = publish(rundir, 10, 20, 30)
    rundir.manifest(30).write_bytes(rundir.manifest(10).read_bytes())
    found = latest.newest_verified(rundir, made)
    assert found is not None and found.step == 20
    assert rundir.steps() == [20, 10]


def test_a_checkpoint_of_another_version_is_refused_and_not_moved(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(rundir, 10)
    with monkeypatch.context() as later:
        later.setattr(manifest, "FORMAT", 99)
        publish(rundir, 20)
    with pytest.raises(DataError, match=r"has format 99, and this trainerd reads format \d: it was written by another"):
        latest.newest_verified(rundir, CheckpointStore(rundir))
    assert rundir.steps() == [20, 10] and manifest.sound(rundir.manifest(20)) is None


def test_where_none_verifies_nothing_is_touched(rundir: RunDirectory) -> None:
    made = publish(rundir, 10, 20)
    for step in (10, 20):
        damage(rundir.path / f"model.ckpt-{step}.index", "flip")
    before = sorted(os.listdir(rundir.path))
    with pytest.raises(DataError, match=r"(?s)none of the 2 checkpoints .*choose another `logdir` to start over"):
        latest.newest_verified(rundir, made)
    assert sorted(os.listdir(rundir.path)) == before


def test_checkpoints_of_another_program_are_not_started_over(rundir: RunDirectory) -> None:
    (rundir.path / "model.ckpt-100.index").write_text("x")
    with pytest.raises(DataError, match="no manifest"):
        latest.newest_verified(rundir, CheckpointStore(rundir))
    with pytest.raises(DataError, match=r"(?s)and none can be used:.*move them away to start over"):
        saver_checkpoints.refuse_to_start_over(rundir, {"model.ckpt-100": "it is not readable"})


def test_an_empty_run_directory_is_a_new_run(rundir: RunDirectory) -> None:
    assert latest.newest_verified(rundir, CheckpointStore(rundir)) is None


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b", "a\0b"])
def test_a_manifest_never_names_a_file_outside(rundir: RunDirectory, name: str) -> None:
    bad = manifest.Manifest("r", step=3, at=0.0, files={name: manifest.FileRecord(1, "x")})
    rundir.manifest(3).write_bytes(bad.to_bytes())
    with pytest.raises(DamagedError, match="outside"):
        manifest.read(rundir.manifest(3))


def test_a_symlink_is_not_followed(rundir: RunDirectory, tmp_path: Path) -> None:
    made = publish(rundir, 3)
    index = rundir.path / "model.ckpt-3.index"
    index.rename(tmp_path / "elsewhere")
    index.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="missing"):
        latest.newest_verified(rundir, made)


def test_a_name_that_is_no_step_is_passed_over(rundir: RunDirectory) -> None:
    for name in ("model.ckpt-07.json", "model.ckpt-\u0664.json", ".deleting-05.json"):
        (rundir.path / name).touch()
    assert catalogue.newest(rundir) is None
    CheckpointStore(rundir).clean()
    assert rundir.steps() == rundir.deletions() == []


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "m[1]", "a*", "a\\b"])
def test_a_basename_that_is_no_name_is_refused_before_anything_is_saved(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="checkpoint_basename"):
        RunDirectory(tmp_path, name)
