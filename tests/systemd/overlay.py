"""What a test machine has in place of this one's files: the upper folder of its overlay."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PREFIX = Path("/opt/trainerd")  # where the machine has trainerd's virtual environment

_JOURNALD = """\
[Journal]
Storage=persistent
RateLimitBurst=0
SystemMaxUse=64M
"""


class MachineError(Exception):
    """The machine cannot be had, or did not do what was expected in time."""


def interpreter() -> Path:
    """The distribution's Python of the version that runs now, which an unprivileged service can execute.

    Raises:
      MachineError: there is none.
    """
    path = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    if not path.exists():
        raise MachineError(
            f"these tests run trainerd as a user without rights, by the distribution's Python, with the packages of "
            f"{sys.prefix}; {path} is missing. Install it, or make the virtual environment with the distribution's."
        )
    return path


def prepare(folder: Path) -> None:
    """What the machine has in place of this one's: no units of ours, an own journal, and trainerd installed."""
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(mode=0o755)
    folder.chmod(0o755)
    upper = folder / "upper"
    _prepare_etc(upper / "etc")
    _replace(upper / "var" / "log" / "journal")
    # Runs of this machine itself are none of the tests' business.
    for name in ("var/lib/trainerd", "var/cache/trainerd", "etc/trainerd", str(PREFIX.relative_to("/"))):
        _replace(upper / name)
    _install(upper / PREFIX.relative_to("/"))


def _prepare_etc(etc: Path) -> None:
    """An /etc in which nothing of this machine starts."""
    system = etc / "systemd" / "system"
    _replace(system)
    (system / "console-getty.service").symlink_to("/dev/null")
    (system / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")
    for level in range(7):  # services of old, which systemd would generate units for
        _replace(etc / f"rc{level}.d")
    for name in ("fstab", "machine-id"):
        (etc / name).write_text("")
    journald = etc / "systemd" / "journald.conf.d" / "tests.conf"
    journald.parent.mkdir(parents=True)
    journald.write_text(_JOURNALD)


def _replace(folder: Path) -> None:
    """An empty folder in the overlay, which hides the one below it."""
    folder.mkdir(parents=True, mode=0o755)
    os.setxattr(folder, "trusted.overlay.opaque", b"y")


def packages() -> Path:
    """The site-packages that the tests run with."""
    return Path(sys.prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _install(prefix: Path) -> None:
    """What `pip install` of this checkout leaves in a virtual environment of the distribution's Python."""
    site = prefix / "lib" / packages().parent.name / "site-packages"
    site.mkdir(parents=True)
    (prefix / "packages").mkdir()
    (site / "packages.pth").write_text(f"{PREFIX}/packages\n")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(CHECKOUT / "trainerd", site / "trainerd", ignore=ignore)
    shutil.copytree(CHECKOUT / "systemd", prefix / "share" / "trainerd" / "systemd")
    python = interpreter()
    (prefix / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(python)
    script = prefix / "bin" / "trainerd"
    script.write_text(f"#!{PREFIX}/bin/python\nfrom trainerd.cli import main\n\nmain()\n")
    _open_to_all(prefix)
    script.chmod(0o755)


def _open_to_all(folder: Path) -> None:
    """Let every user read a tree, whatever this checkout's own permissions are."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
