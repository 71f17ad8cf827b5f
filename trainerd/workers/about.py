"""The values that must be the same on all workers, and the report of a difference. Imports no TensorFlow."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import xxhash

from trainerd.config import fingerprint
from trainerd.config.schema import Config
from trainerd.version import __version__

_SHOWN = 5
_OWN = ("config.cluster.token",)  # what may be another on each machine


def about_this(config: Config) -> dict[str, str]:
    """Return the versions, the config and the job's source on this machine, by name."""
    found = {name: value for name, value in fingerprint.of_config(config).items() if name not in _OWN}
    found["trainerd"] = __version__
    found["python"] = ".".join(map(str, sys.version_info[:2]))
    for package in ("tensorflow", "keras"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "none"
    found["the job's source"] = _source(config.entry, config.folder)
    return found


def difference(chiefs: Mapping[str, str], others: Mapping[str, str], name: str) -> str:
    """Return the differences of another worker from the chief, for a person; empty if there are none."""
    names = [each for each in sorted(chiefs.keys() | others.keys()) if chiefs.get(each) != others.get(each)]
    lines = [f"  {each}: {chiefs.get(each)} on the chief, {others.get(each)} on {name}" for each in names[:_SHOWN]]
    if len(names) > _SHOWN:
        lines.append(f"  and {len(names) - _SHOWN} more")
    return "\n".join(lines)


def _source(entry: str, folder: Path) -> str:
    """Return a digest of the file that the entry's module would be imported from."""
    name = entry.partition(":")[0]
    path = [str(folder), *sys.path]
    for part in name.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return "none"
        path = list(spec.submodule_search_locations or [])
    if not spec or not spec.origin:
        return "none"
    return xxhash.xxh3_64_hexdigest(Path(spec.origin).read_bytes())
