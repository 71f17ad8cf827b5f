"""The facts of the machine on which the conditions of `[when]` depend."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Probe(enum.StrEnum):
    """The facts that can be read, each by the key of `[when]` that needs it; the last is for every run with a GPU."""

    BATTERY = "on_battery"
    IDLE = "idle_mins"
    LOAD = "max_load"
    GPUS = "free_gpu"
    TEMP = "max_temp"
    GPU_MEMORY = "the memory of GPUs"


@dataclass(frozen=True)
class MachineFacts:
    """The state of the machine. None stands for what was not asked or cannot be read: it keeps no run from training.

    Attributes:
      on_battery: whether the machine runs on its battery.
      idle_secs: how long ago somebody last used a keyboard or a terminal.
      others_load: how many processor cores are kept busy by processes that are not of the agent's runs.
      others_on_gpus: the compute processes on each GPU, by its number, that are not of the agent's runs.
      temp: the temperature of the hottest processor or GPU, in °C.
      gpu_memory: the memory of each GPU, by its number, that is free or that the agent's runs have, in bytes.
    """

    on_battery: bool | None = None
    idle_secs: float | None = None
    others_load: float | None = None
    others_on_gpus: Mapping[int, tuple[int, ...]] | None = None
    temp: float | None = None
    gpu_memory: Mapping[int, int] | None = None
