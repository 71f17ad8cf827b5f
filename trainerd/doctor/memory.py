"""The memory that a run needs at its peak, beside the limits that it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import psutil

from trainerd import text
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well
from trainerd.system.resources import control_groups, memory_folders

_TIGHT = 0.9  # of a limit


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
    if (size := control_groups.memory_limit(facts.pid)) is not None:
        found.append(Limit(size, "the control group is allowed", "raise the limit of the container or the job"))
    yield from tier(facts)
    yield judge(facts.memory_bytes, facts.newest.size if facts.newest is not None else 0, found)


def tier(facts: Facts) -> Iterator[Finding]:
    """Return the finding on saves to memory, as the trainer reported it last."""
    state = facts.state
    if not facts.config.checkpoint.memory_overhead or state is None:
        return
    if state.memory_tier.off:
        cure = f"free some memory; or set {memory_folders.VARIABLE} to another folder; or `memory_overhead = 0`."
        yield replace(warning(f"nothing is saved to memory: {state.memory_tier.off}", cure), subject="memory tier")
    elif state.memory_tier.step is not None:
        yield replace(well(f"step {state.memory_tier.step} is in {state.memory_tier.path}"), subject="memory tier")


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
