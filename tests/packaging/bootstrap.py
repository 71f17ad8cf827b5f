"""Bare systems: what debootstrap makes of the archives that apt uses here, with Python and trainerd's wheel."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests.packaging.pip_settings import pip_settings
from tests.packaging.root import Root, RootError, host

PREFIX = "/opt/trainerd"  # where docs/systemd.md and packaging/Containerfile put trainerd
PYTHON = "python3,python3-venv"  # what the README asks for; pip needs nothing else
USER, HOME = 1000, "/home/someone"

_TOOLS = ("debootstrap", "buildah", "unshare", "setpriv", "chroot")
_UBUNTU = ("noble",)
_UBUNTU_KEYRING = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
_SCRIPTS = Path("/usr/share/debootstrap/scripts")
# Debian 12 has no package of Ubuntu's keys. Debian 13 has, and its archive is signed with keys that Debian 12 knows.
_WITH_UBUNTU_KEYRING = "trixie"


def require() -> None:
    """Check that roots can be made here.

    Raises:
      RootError: what is missing, and what to do.
    """
    if os.geteuid() != 0:
        raise RootError("these tests make systems of their own, and that needs root")
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        raise RootError(f"missing: {', '.join(missing)}. `apt-get install debootstrap buildah`.")


def system(suite: str, folder: Path, wheel: Path) -> Root:
    """Make a bare system, and install a wheel in it: `bootstrap`, then `install`."""
    root = bootstrap(suite, folder)
    install(root, wheel)
    return root


def bootstrap(suite: str, folder: Path) -> Root:
    """Make a bare root, with Python and a user.

    Args:
      suite: the codename of a release of Debian or Ubuntu.
      folder: where; it must not exist.

    Raises:
      RootError: it cannot be had.
    """
    options = ["--variant=minbase", f"--include={PYTHON}"]
    script: list[str] = []
    if suite in _UBUNTU:
        options += ["--components=main,universe", f"--keyring={_ubuntu_keyring(folder.parent)}"]
        if not (_SCRIPTS / suite).exists():  # a debootstrap that is older than the release
            script = [str(_SCRIPTS / "gutsy")]
    host("debootstrap", *options, suite, folder, _mirror(suite), *script)
    root = Root(folder)
    root.run("useradd", "--create-home", "--uid", str(USER), Path(HOME).name)
    return root


def install(root: Root, wheel: Path) -> None:
    """Install a wheel and what it requires, in a virtual environment, with pip as it is configured here."""
    settings = pip_settings()
    for place in settings.places:
        root.place(place)
    root.place(wheel, f"/root/{wheel.name}")
    variables = [f"{name}={value}" for name, value in settings.environment.items()]
    root.run("python3", "-m", "venv", PREFIX)
    root.run(*variables, f"{PREFIX}/bin/pip", "install", "--no-cache-dir", f"/root/{wheel.name}")
    root.binds.clear()


def _mirror(suite: str) -> str:
    """Where apt gets the main component of a release here; nothing where it does not: debootstrap knows of one."""
    wanted = ("Created-By: Packages", f"Codename: {suite}", "Component: main")
    found = host("apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted).split()
    return found[0] if found else ""


def _ubuntu_keyring(folder: Path) -> Path:
    """The keys of Ubuntu's archive, from Debian's package of them."""
    if _UBUNTU_KEYRING.exists():
        return _UBUNTU_KEYRING
    [codename] = host("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME").split()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for each in ("lists/partial", "cache/archives/partial"):
            Path(scratch, each).mkdir(parents=True)
        sources = Path(scratch, "sources.list")
        sources.write_text(f"deb {_mirror(codename)} {_WITH_UBUNTU_KEYRING} main\n")
        apt = ["apt-get", "-qq", "-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=-"]
        apt += ["-o", f"Dir::State::Lists={scratch}/lists", "-o", f"Dir::Cache={scratch}/cache"]
        apt += ["-o", "APT::Sandbox::User=root"]
        host(*apt, "update")
        host("sh", "-c", 'cd "$1" && shift && "$@"', "sh", scratch, *apt, "download", "ubuntu-keyring")
        [package] = Path(scratch).glob("*.deb")
        host("dpkg-deb", "--extract", package, folder / "keyring")
    return folder / "keyring" / _UBUNTU_KEYRING.relative_to("/")
