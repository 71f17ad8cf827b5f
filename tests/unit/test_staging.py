"""A release is put in place as a whole, or not at all: a folder, and an archive."""

from __future__ import annotations

import errno
import fcntl
import os
import tarfile
from pathlib import Path

import pytest

from tests.unit.test_rollback import count_operations, kill_at
from trainerd.errors import UsageError
from trainerd.release.archive import archive
from trainerd.system.staging import put_in_place, staged

CONTENT = {"model/saved_model.pb": "a graph", "model/variables/variables.index": "numbers", "release.json": "{}"}


def put_together(out: Path) -> None:
    """What `trainerd export` does once a model is written and verified."""
    folder = out.with_name(out.name.removesuffix(".tar.gz"))
    with staged(folder) as staging:
        for name, content in CONTENT.items():
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).write_text(content)
        if out.name.endswith(".tar.gz"):
            archive(staging, staging.with_name(out.name))
            put_in_place(staging.with_name(out.name), out)
        else:
            put_in_place(staging, folder)


def read(out: Path) -> dict[str, str]:
    if out.is_dir():
        return {str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()}
    with tarfile.open(out) as packed:
        files = {member.name: packed.extractfile(member) for member in packed.getmembers()}
        return {name.partition("/")[2]: file.read().decode() for name, file in files.items() if file is not None}


@pytest.mark.parametrize("suffix", ["", ".tar.gz"])
def test_a_kill_at_any_operation_leaves_a_whole_release_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    with monkeypatch.context() as patch:
        operations = count_operations(patch, lambda number: None)
        put_together(tmp_path / f"whole{suffix}")
        total = operations()
    assert total > (2 if suffix else 8)
    made = set[bool]()
    for nth in range(total):
        out = tmp_path / f"release-{nth}{suffix}"
        kill_at(nth, monkeypatch, lambda out=out: put_together(out))  # type: ignore[misc]
        made.add(out.exists())
        assert not out.exists() or read(out) == CONTENT
        if out.exists():
            with pytest.raises(UsageError, match="exists and is not empty"):
                put_together(out)
        else:
            put_together(out)
        assert read(out) == CONTENT
        assert [path.name for path in tmp_path.iterdir() if f"release-{nth}." in f"{path.name}."] == [out.name]
    assert made == {True, False}


@pytest.mark.parametrize("suffix", ["", ".tar.gz"])
@pytest.mark.parametrize("has_links", [True, False])
def test_of_two_exports_into_one_name_the_first_wins_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, has_links: bool
) -> None:
    def no_link(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not has_links:
        monkeypatch.setattr(os, "link", no_link)
    out = tmp_path / f"out{suffix}"
    with pytest.raises(UsageError, match="exists and is not empty"), staged(tmp_path / "out") as staging:
        (staging / "release.json").write_text("of the second")
        put_together(out)
        if suffix:
            archive(staging, staging.with_name(out.name))
        put_in_place(staging.with_name(out.name), out)
    assert read(out) == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_only_what_no_process_holds_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".other.0abc_9xy.trainerd-staging"
    kept = [tmp_path / ".other.database.staging", tmp_path / "0abc_9xy.trainerd-staging"]
    for each in [left, *kept]:
        (each / "out").mkdir(parents=True)
    with staged(tmp_path / "out") as staging:
        assert not left.exists()
        with staged(tmp_path / "out") as second:
            assert staging.exists() and second.exists()
        assert staging.exists() and not second.exists()
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_folder_is_staged_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lock(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_lock)
    left = tmp_path / ".out.0abc_9xy.trainerd-staging"
    left.mkdir()
    put_together(tmp_path / "out")
    assert read(tmp_path / "out") == CONTENT and left.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_another_user_puts_in_the_place_of_the_staging_folder_is_not_moved(tmp_path: Path) -> None:
    """Its parent folder is theirs, so they may exchange it for a link to a folder of root's."""
    roots = tmp_path / "roots"
    (roots / "out").mkdir(parents=True)
    with pytest.raises(OSError, match="a symbolic link that uid 12345 has made"), staged(tmp_path / "out") as staging:
        place = staging.parent
        place.rename(tmp_path / "aside")
        place.symlink_to(roots)
        os.chown(place, 12345, 12345, follow_symlinks=False)
        put_in_place(staging, tmp_path / "out")
    assert (roots / "out").exists() and not (tmp_path / "out").exists()
