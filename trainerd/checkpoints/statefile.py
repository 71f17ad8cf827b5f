"""TensorFlow's `checkpoint` file: text that names the newest checkpoint, and that a person may edit.

The format is the text form of tensorflow/python/training/checkpoint_state.proto.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_QUOTED = r'"((?:[^"\\]|\\[0-7]{3}|\\[\\"\x27])*)"'
_LINE = re.compile(rf"^\s*(model_checkpoint_path|all_model_checkpoint_paths)\s*:\s*{_QUOTED}\s*$")


@dataclass(frozen=True)
class StateFile:
    """What a `checkpoint` file says: the step that it names, and those that it lists."""

    named: int
    listed: tuple[int, ...]

    def to_bytes(self, basename: str) -> bytes:
        """The file's content, with paths relative to its folder."""
        lines = [f'model_checkpoint_path: "{basename}-{self.named}"']
        lines += [f'all_model_checkpoint_paths: "{basename}-{step}"' for step in self.listed]
        return ("\n".join(lines) + "\n").encode()


def read(path: Path, basename: str) -> StateFile | None:
    """Read a `checkpoint` file. None where it is missing or not understood, and so tells nothing of this run."""
    lines = _lines(path)
    if lines is None:
        return None
    steps = [(key, _step(name, basename)) for key, name in lines]
    named = [step for key, step in steps if key == "model_checkpoint_path"]
    listed = tuple(step for key, step in steps if key != "model_checkpoint_path" and step is not None)
    if not named or named[-1] is None or any(step is None for _, step in steps):
        return None
    return StateFile(named[-1], listed)


def named(path: Path) -> str | None:
    """The name of the checkpoint in its folder that a `checkpoint` names, whoever wrote it; None as in `read`."""
    lines = _lines(path)
    found = [name for key, name in lines or () if key == "model_checkpoint_path"]
    return found[-1] if found else None


def listed(path: Path) -> list[str]:
    """The names of all checkpoints in its folder that a `checkpoint` lists, the newest last; as in `read`."""
    return [name for key, name in _lines(path) or () if key == "all_model_checkpoint_paths"]


def _lines(path: Path) -> list[tuple[str, str]] | None:
    """Each key with the name of a checkpoint in the same folder; None where the file is not understood."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > 1 << 20:
            return None
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        name = _name(_unescaped(match[2]), path.parent) if match else None
        if match is None or name is None:
            # TensorFlow writes timestamps too, on lines of their own; anything else is damage.
            if re.match(r"^\s*(all_model_checkpoint_timestamps|last_preserved_timestamp)\s*:", line):
                continue
            return None
        found.append((match[1], name))
    return found


def _unescaped(text: str) -> str:
    """What protocol buffers' text form writes as octal digits, such as the letters of other languages."""
    return text.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")


def _name(said: str, folder: Path) -> str | None:
    """The name of a checkpoint in `folder`; None for any other path."""
    path = Path(said)
    inside = path.parent == folder if path.is_absolute() else path.name == said
    return path.name if inside and path.name else None


def _step(name: str, basename: str) -> int | None:
    match = re.fullmatch(re.escape(basename) + r"-(\d+)", name)
    return int(match[1]) if match else None
