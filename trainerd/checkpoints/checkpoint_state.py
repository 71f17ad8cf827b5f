"""TensorFlow's `checkpoint` file: text that names the newest checkpoint, and that a person may edit.

The format is the text form of tensorflow/python/training/checkpoint_state.proto.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from trainerd.errors import ConfigError, StorageError
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import is_damage, storage_error
from trainerd.system.regular_files import read_regular

_QUOTED = r'"((?:[^"\\]|\\[0-7]{3}|\\[\\"\x27])*)"'
_NAMED = "model_checkpoint_path"
_LINE = re.compile(rf"^\s*({_NAMED}|all_model_checkpoint_paths)\s*:\s*{_QUOTED}\s*$")
_TIMES = re.compile(r"^\s*(all_model_checkpoint_timestamps|last_preserved_timestamp)\s*:")


@dataclass(frozen=True)
class StateFile:
    """The content of a `checkpoint` file: the step that it names, and those that it lists."""

    named: int
    listed: tuple[int, ...]

    def to_bytes(self, basename: str) -> bytes:
        """Return the file's content, with paths relative to its folder."""
        lines = [f'model_checkpoint_path: "{basename}-{self.named}"']
        lines += [f'all_model_checkpoint_paths: "{basename}-{step}"' for step in self.listed]
        return ("\n".join(lines) + "\n").encode()


def read(rundir: RunDirectory) -> StateFile | None:
    """Read the `checkpoint` of a run. Returns None if it is missing or not understood."""
    steps = [(key, _step(said, rundir)) for key, said in _lines(rundir.checkpoint_state)]
    named = [step for key, step in steps if key == _NAMED]
    if not named or named[-1] is None or any(step is None for _, step in steps):
        return None
    return StateFile(named[-1], tuple(step for key, step in steps if key != _NAMED and step is not None))


def named(path: Path) -> str | None:
    """Return the name of the checkpoint in its folder that a `checkpoint` names, whoever wrote it.

    None if it is missing or not understood, or names one in another folder.
    """
    found = [_name(said, path.parent) for key, said in _lines(path) if key == _NAMED]
    return found[-1] if found else None


def run_directory(path: Path) -> RunDirectory:
    """Return a run directory with the basename of its checkpoints: that of the one that `checkpoint` names, if that has
    a manifest. A program may have chosen another basename than the usual one."""
    with contextlib.suppress(StorageError, ConfigError):
        name = named(RunDirectory(path).checkpoint_state) or ""
        basename, _, step = name.rpartition("-")
        if basename and step.isdecimal() and safe_paths.is_file(path / f"{name}.json"):
            return RunDirectory(path, basename)
    return RunDirectory(path)


def leads_out(path: Path) -> bool:
    """Return whether a `checkpoint` names one in another folder."""
    said = [said for key, said in _lines(path) if key == _NAMED]
    return bool(said) and _name(said[-1], path.parent) is None


def listed(path: Path) -> list[str]:
    """Return the names of the checkpoints in its folder that a `checkpoint` lists, the newest last."""
    names = [_name(said, path.parent) for key, said in _lines(path) if key != _NAMED]
    return [name for name in names if name is not None]


def _lines(path: Path) -> list[tuple[str, str]]:
    """Return each key with its path; none if the file is missing or not understood.

    Raises:
      StorageError: it cannot be read now.
    """
    try:
        text = read_regular(path).decode()
    except UnicodeDecodeError:
        return []
    except OSError as error:
        if is_damage(error):
            return []
        raise storage_error(error, f"read {path}") from error
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if match := _LINE.match(line):
            found.append((match[1], _unescaped(match[2])))
        elif not _TIMES.match(line):  # which TensorFlow writes too; anything else is damage
            return []
    return found


def _unescaped(text: str) -> str:
    """Decode what protocol buffers' text form writes as octal digits, such as letters beyond ASCII."""
    return text.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")


def _name(said: str, folder: Path) -> str | None:
    """Return the name of a checkpoint in `folder`; None for one that is in another.

    TensorFlow's Saver writes absolute paths, and the folder may have been moved since, or be called by another name.
    """
    path = Path(os.path.normpath(said))
    if not path.is_absolute():
        return path.name if path.name == str(path) and path.name not in ("", ".", "..") else None
    is_elsewhere = os.path.realpath(path.parent) != os.path.realpath(folder)
    if is_elsewhere and (path.exists() or path.with_name(f"{path.name}.index").exists()):
        return None
    return path.name or None


def _step(said: str, rundir: RunDirectory) -> int | None:
    """Return the step of a checkpoint of this run; None for any other path."""
    name = _name(said, rundir.path)
    return None if name is None else rundir.step_of(name)
