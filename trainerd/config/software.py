"""The versions of what trains: a part of the fingerprint. Nothing of it is imported."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

from trainerd.config.fingerprint import SOFTWARE, Fingerprint
from trainerd.version import __version__

NAMES = ("tensorflow", "keras", "trainerd", "python")
_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly")  # packages that have it


def installed() -> dict[str, str]:
    """Return the versions of what is installed, by the names of `NAMES`. What is missing is left out."""
    found = {"trainerd": __version__, "python": platform.python_version()}
    for name, packages in (("tensorflow", _TENSORFLOW), ("keras", ("keras",))):
        versions = [version for package in packages if (version := _version(package)) is not None]
        found |= {name: versions[0]} if versions else {}
    return found


def of_software() -> Fingerprint:
    """Return the entries of a fingerprint."""
    return {SOFTWARE + name: version for name, version in installed().items()}


@cache  # each session makes a fingerprint, and looking packages up takes more than a millisecond
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
