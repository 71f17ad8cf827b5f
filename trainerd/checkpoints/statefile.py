"""TensorFlow's `checkpoint` file: text that names the newest checkpoint, and that a person may edit.

The format is the text form of tensorflow/python/training/checkpoint_state.proto.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r'^\s*(model_checkpoint_path|all_model_checkpoint_paths)\s*:\s*"([^"\\]*)"\s*$')


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
    """Read a `checkpoint` file. None where it is missing or not understood, and so tells nothing."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > 1 << 20:
            return None
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    named: int | None = None
    listed: list[int] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        step = _step(match[2], path.parent, basename) if match else None
        if match is None or step is None:
            # TensorFlow writes timestamps too, on lines of their own; anything else is damage.
            if re.match(r"^\s*(all_model_checkpoint_timestamps|last_preserved_timestamp)\s*:", line):
                continue
            return None
        if match[1] == "model_checkpoint_path":
            named = step
        else:
            listed.append(step)
    return None if named is None else StateFile(named, tuple(listed))


def _step(name: str, folder: Path, basename: str) -> int | None:
    """The step of a checkpoint in `folder`; None for any other path."""
    if Path(name).is_absolute() and Path(name).parent != folder:
        return None
    if not Path(name).is_absolute() and Path(name).name != name:
        return None
    match = re.fullmatch(re.escape(basename) + r"-(\d+)", Path(name).name)
    return int(match[1]) if match else None
