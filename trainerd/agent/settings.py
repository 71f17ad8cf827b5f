"""The config of the agent, agent.toml: how many runs train at a time, and on what."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from trainerd.config import tables
from trainerd.config.tables import key
from trainerd.system.gpus import Gpus, NvmlError
from trainerd.system.machine import NAME
from trainerd.system.xdg import config_home

log = logging.getLogger(__name__)

FILE = "agent.toml"
Slots = Annotated[int, Meta(ge=1, le=1024)]
Gpu = Annotated[int, Meta(ge=0, le=1024)]
Duration = Annotated[
    str, Meta(pattern=r"^\d{1,9}(\.\d{1,3})? ?(s|min|h|d)$", description='a time, such as "30 min" or "2h"')
]
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The number of runs that train at a time, and the GPUs that they get."""

    slots: Slots | None = key(
        None, "runs", "How many runs of the queue train at a time. Default: as many as there are GPUs, 1 at least."
    )
    gpus: tuple[Gpu, ...] | None = key(
        None,
        "",
        "The GPUs that the agent gives to runs, by their numbers, such as [0, 1]. Default: all that NVML sees.",
    )
    share: Duration | None = key(
        None,
        "",
        'After how long a run gives its place to one of the same priority that waits, such as "2h". Default: never.',
    )

    @property
    def share_secs(self) -> float | None:
        """The length of a turn in seconds; None if there are no turns."""
        if self.share is None:
            return None
        found = re.fullmatch(r"([\d.]+) ?([a-z]+)", self.share)
        assert found is not None
        return float(found[1]) * _UNITS[found[2]]

    def present_gpus(self) -> tuple[int, ...]:
        """Return the GPUs that runs get, by their numbers."""
        if self.gpus is not None:
            return self.gpus
        try:
            return tuple(Gpus().numbers())
        except NvmlError as error:
            log.info("the agent gives no GPUs to runs, unless `gpus` in agent.toml names them: %s", error)
            return ()


def find() -> Path | None:
    """Return the user's own file; None if there is none."""
    path = config_home() / NAME / FILE
    return path if path.exists() else None


def load(path: Path | None) -> AgentSettings:
    """Read the settings; the defaults if there is no file.

    Raises:
      ConfigError: it cannot be read, or holds mistakes.
    """
    if path is None:
        return AgentSettings()
    reader = tables.Tables(AgentSettings)
    found = reader.read(tables.read(path, "Without --config, the agent reads ~/.config/trainerd/agent.toml."))
    tables.require_none(reader.mistakes, path)
    settings: AgentSettings = found
    return settings
