"""What is in the wheel and in the sdist."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

from trainerd.version import __version__

CHECKOUT = Path(__file__).resolve().parents[2]


def tracked() -> set[str]:
    """The files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return {path for path in listed.stdout.split("\0") if path and (CHECKOUT / path).exists()}


def test_the_wheel_is_the_package_its_units_and_its_license(wheel: Path) -> None:
    package = {path for path in tracked() if path.startswith("trainerd/")}
    assert {"trainerd/py.typed", "trainerd/examples/digits.csv.gz", "trainerd/examples/starter/job.py"} <= package
    data, info = f"trainerd-{__version__}.data/data", f"trainerd-{__version__}.dist-info"
    shipped = ("trainerd", "trainerd@", "trainerd-watch", "trainerd-copy@", "trainerd-agent@")
    units = {f"{data}/share/trainerd/systemd/{unit}.service" for unit in shipped}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    described = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt")}
    assert names == package | units | described | {f"{info}/licenses/LICENSE"}


def test_the_sdist_is_the_repository(sdist: Path) -> None:
    top = f"trainerd-{__version__}/"
    with tarfile.open(sdist) as archive:
        names = {member.name.removeprefix(top) for member in archive.getmembers() if member.isfile()}
    made = {name for name in names if name == "PKG-INFO" or name.startswith("trainerd.egg-info/")}
    assert names - made == tracked()


def test_what_an_index_shows_of_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shown = Parser().parsestr(archive.read(f"trainerd-{__version__}.dist-info/METADATA").decode())
    assert shown["Name"] == "trainerd" and shown["Version"] == __version__
    assert shown["License-Expression"] == "Apache-2.0" and shown["License-File"] == "LICENSE"
    assert shown["Requires-Python"] == "<3.14,>=3.11" and shown["Summary"] and shown["Keywords"]
    assert shown.get_payload() == (CHECKOUT / "README.md").read_text(encoding="utf-8")
    changes = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = [each for each in changes.split("\n## ")[1:] if not each.startswith("[Unreleased]")]
    assert released[0].startswith(f"[{__version__}] - "), "of what is released the changes of this version come first"
