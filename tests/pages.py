"""The pages of the documentation, and what of them is to be run.

The file's name may stand above a Python block, as in `<!-- example: job.py -->`. The shell blocks under `<!-- run -->`
are run, those of a page one after the other in one folder. Those under `<!-- boot -->` and `<!-- rebooted -->` are run
on a booted machine, before and after a reboot; the name of a machine may follow, as in `<!-- boot: first machine -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# One for each kind of reader. The packaging tests type them in a bare system, and the systemd tests across a reboot.
TUTORIALS = (
    "docs/start.md",
    "docs/tutorials/keras-script.md",
    "docs/tutorials/tf1-program.md",
    "docs/tutorials/many-machines.md",
)

PYTHON = re.compile(r"(?:<!-- example: (?P<file>\S+) -->\n)?^```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^<!-- (?P<mark>[a-z :]+) -->\n```sh\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def script_of(page: Path, mark: str = "run") -> str:
    """The shell blocks of a page that have this mark, as one script; empty if it has none."""
    found = _SHELL.finditer(page.read_text(encoding="utf-8"))
    return "".join(match["text"] for match in found if match["mark"] == mark)


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows into a folder."""
    for match in PYTHON.finditer(page.read_text(encoding="utf-8")):
        if match["file"]:
            (folder / match["file"]).write_text(match["text"], encoding="utf-8")
