"""The pages of the documentation, and what of them is to be run.

The file's name may stand above a Python block, as in `<!-- example: job.py -->`. The shell blocks under `<!-- run -->`
are run, those of a page one after the other in one folder.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# One for each kind of reader. The packaging tests type them in a bare system.
TUTORIALS = (
    "docs/start.md",
    "docs/tutorials/keras-script.md",
    "docs/tutorials/tf1-program.md",
    "docs/tutorials/many-machines.md",
)

PYTHON = re.compile(r"(?:<!-- example: (?P<file>\S+) -->\n)?^```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^<!-- run -->\n```sh\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def script_of(page: Path) -> str:
    """The shell blocks of a page that are to be run, as one script; empty if it has none."""
    return "".join(match["text"] for match in _SHELL.finditer(page.read_text(encoding="utf-8")))


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows into a folder."""
    for match in PYTHON.finditer(page.read_text(encoding="utf-8")):
        if match["file"]:
            (folder / match["file"]).write_text(match["text"], encoding="utf-8")
