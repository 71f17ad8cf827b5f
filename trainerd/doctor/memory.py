"""The memory that a run needs at its peak, beside the limits that it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainerd import text
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well

_TIGHT = 0.9  # of a limit
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Limit:
    """A limit.

    Attributes:
      size: bytes.
      of: what sets it.
      cure: how it is raised.
    """

    size: int
    of: str
    cure: str


def check(facts: Facts) -> Iterator[Finding]:
    """Check the unit, the control group and the machine."""
    found = [Limit(psutil.virtual_memory().total, "the machine has", "use a machine with more memory")]
    if facts.service is not None and facts.properties.get("MemoryMax", "").isdigit():
        edit = f"`{facts.service.systemctl} edit {facts.service.name}`, and set a larger MemoryMax= under [Service]"
        found.append(Limit(int(facts.properties["MemoryMax"]), f"MemoryMax= of {facts.service.name} is", edit))
    of_process = Path(f"/proc/{facts.pid or 'self'}/cgroup").read_text()
    if (size := in_group(of_process, _CGROUPS)) is not None:
        found.append(Limit(size, "the control group is allowed", "raise the limit of the container or the job"))
    yield judge(facts.memory_bytes, facts.newest.size if facts.newest is not None else 0, found)


def judge(resident: int | None, snapshot: int, limits: list[Limit]) -> Finding:
    """Return whether the peak fits the smallest limit.

    A step that writes while a snapshot is held copies each buffer that it writes to, once.

    Args:
      resident: bytes of the process while it trains; None if they are not known.
      snapshot: bytes of the newest checkpoint.
      limits: one at least.
    """
    limit = min(limits, key=lambda each: each.size)
    allowed = f"{limit.of} {text.size(limit.size)}"
    if resident is None:
        return well(f"{allowed}; what the run needs is known after its start")
    peak = resident + snapshot
    needs = f"{text.size(resident)} and a snapshot of {text.size(snapshot)} are needed, and {allowed}"
    cure = f"{limit.cure}; or take smaller batches."
    if peak > limit.size:
        return problem(f"{needs}: the process is killed at a save", cure)
    if peak > _TIGHT * limit.size:
        return warning(f"{needs}, which is tight", cure)
    return well(needs)


def in_group(cgroup: str, root: Path) -> int | None:
    """Return the smallest memory limit of the control groups of a process, those above it included; None for none.

    Args:
      cgroup: the text of /proc/PID/cgroup, of version 1, 2 or both.
      root: where control groups are mounted.
    """
    found = [size for folder, name in _folders(cgroup, root) if (size := _size(folder / name)) is not None]
    return min(found, default=None)


def _folders(cgroup: str, root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders that may have a limit, and its file's name. A container sees its own group as the root."""
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounted, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            mounted, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        place = mounted / path.lstrip("/")
        yield from ((each, name) for each in (place, *place.parents) if each.is_relative_to(mounted))


def _size(file: Path) -> int | None:
    try:
        said = file.read_text().strip()
    except OSError:
        return None
    return int(said) if said.isdigit() and int(said) < 1 << 60 else None  # version 1 has a huge number for none
