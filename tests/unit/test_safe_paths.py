"""Operations in a folder whose owner exchanges parts of the path for links while they run."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainerd.system import safe_paths
from trainerd.system.durable_files import fsync_file, write_atomic, xxh128
from trainerd.system.regular_files import open_to_append, read_regular

STRANGER, THIRD = 12345, 23456

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def write(path: Path) -> None:
    write_atomic(path, b"ours", for_all=True)


def add(path: Path) -> None:
    os.close(open_to_append(path))


def rename_here(path: Path) -> None:
    safe_paths.rename(path, path.with_name("new"))
    safe_paths.rename(path.with_name("new"), path)


OPERATIONS: list[Callable[[Path], object]] = [
    write,
    add,
    read_regular,
    xxh128,
    fsync_file,
    rename_here,
    safe_paths.exists,
    safe_paths.size,
    lambda path: safe_paths.names(path.parent),
    lambda path: safe_paths.make_folder(path.parent / "folder", exist_ok=True),
    lambda path: safe_paths.remove(path.parent / "name"),
    lambda path: safe_paths.remove_tree(path.parent / "tree"),
]


def a_run(tmp_path: Path, owner: int) -> Path:
    """A folder of a stranger's, and beside it one that nobody but its owner may change."""
    for each in ("run", "precious"):
        folder = tmp_path / each
        (folder / "tree").mkdir(parents=True)
        for name in ("file", "name", "tree/leaf"):
            (folder / name).write_text(each)
            (folder / name).chmod(0o600)
        if each == "run" or owner:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, STRANGER if each == "run" else owner, -1)
    return tmp_path / "run"


def contents(folder: Path) -> list[tuple[str, int, str]]:
    return [
        (path.name, path.stat().st_mode, path.read_text() if path.is_file() else "")
        for path in sorted(folder.rglob("*"))
    ]


@as_root
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("owner", [0, THIRD])
def test_no_operation_follows_a_link_of_a_stranger_to_a_folder_of_another(
    tmp_path: Path, operation: Callable[[Path], object], owner: int
) -> None:
    run = a_run(tmp_path, owner)
    before = contents(tmp_path / "precious")
    run.rename(tmp_path / "moved")
    run.symlink_to(tmp_path / "precious")
    os.lchown(run, STRANGER, -1)
    with pytest.raises(OSError, match=f"uid {STRANGER} has made leads to a folder of uid {owner}") as raised:
        operation(run / "file")
    assert raised.value.errno == errno.ELOOP
    assert contents(tmp_path / "precious") == before


@as_root
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("nth", range(6))
def test_a_folder_that_is_exchanged_in_the_middle_redirects_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: Callable[[Path], object], nth: int
) -> None:
    """Whatever the operation opens: right after that there is a link in place of the folder."""
    run, opened, real = a_run(tmp_path, 0), 0, os.open
    before = contents(tmp_path / "precious")

    def open_and_exchange(*args: Any, **kwargs: Any) -> int:
        nonlocal opened
        descriptor = real(*args, **kwargs)
        if (opened := opened + 1) == nth + 1:
            run.rename(tmp_path / "moved")
            run.symlink_to(tmp_path / "precious")
            os.lchown(run, STRANGER, -1)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_exchange)
    with contextlib.suppress(OSError):
        operation(run / "file")
    assert contents(tmp_path / "precious") == before


@as_root
def test_a_link_to_a_folder_of_its_maker_is_followed(tmp_path: Path) -> None:
    run = a_run(tmp_path, 0)
    link = tmp_path / "link"
    link.symlink_to("run")
    os.lchown(link, STRANGER, -1)
    assert read_regular(link / "file") == b"run"
    own = tmp_path / "own"
    own.symlink_to(tmp_path / "precious")
    assert read_regular(own / "file") == b"precious"
    assert safe_paths.names(own) == safe_paths.names(run)


def test_a_link_of_proc_leads_to_what_is_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("there")
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        tmp_path.rename(tmp_path.with_name("moved"))
        assert read_regular(Path(f"/proc/self/fd/{descriptor}") / "file") == b"there"
        assert read_regular(Path(f"/proc/{os.getpid()}/root") / tmp_path.with_name("moved").relative_to("/") / "file")
    finally:
        os.close(descriptor)


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="Too many levels"):
        safe_paths.exists(tmp_path / "one" / "file")


def test_what_is_missing_is_missing(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere" / "file"
    assert not safe_paths.exists(nowhere) and safe_paths.names(nowhere) == []
    safe_paths.remove(nowhere, missing_ok=True)
    (tmp_path / "file").touch()
    assert not safe_paths.exists(tmp_path / "file" / "within")
    for operation in (safe_paths.remove, safe_paths.remove_tree, safe_paths.size):
        with pytest.raises(FileNotFoundError):
            operation(nowhere)


def test_a_tree_goes_and_what_its_links_lead_to_stays(tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / "tree" / "deep" / "link").symlink_to(tmp_path / "precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    safe_paths.remove_tree(tmp_path / "tree")
    safe_paths.remove_tree(tmp_path / "link")
    assert safe_paths.names(tmp_path) == ["precious"] and (tmp_path / "precious" / "file").exists()


def test_a_folder_takes_no_place_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(FileExistsError):
        safe_paths.make_folder(tmp_path / "link", exist_ok=True)
    safe_paths.make_folder(tmp_path / "folder", exist_ok=True)
    safe_paths.make_folder(tmp_path / "folder", exist_ok=True)
    with pytest.raises(FileExistsError):
        safe_paths.make_folder(tmp_path / "folder")


def test_a_link_of_ones_own_leads_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "second").symlink_to("file")
    (tmp_path / "folder" / "first").symlink_to(Path("..", "second"))
    assert safe_paths.followed(tmp_path / "folder" / "first").resolve() == tmp_path / "file"
    assert safe_paths.followed(tmp_path / "none") == tmp_path / "none"
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        safe_paths.followed(tmp_path / "circle")


@as_root
def test_a_link_of_a_stranger_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    os.lchown(tmp_path / "link", STRANGER, STRANGER)
    (tmp_path / "own").symlink_to("link")
    for name in ("link", "own"):
        assert safe_paths.followed(tmp_path / name) == tmp_path / "link"
