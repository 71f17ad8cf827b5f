"""The devices of this process that train one model together, as the config names them."""

from __future__ import annotations

from typing import Literal

from trainerd.system.process_wide import process_wide

Devices = Literal["all"] | int | tuple[str, ...]
_chosen = process_wide("devices", list[Devices | None]([None]))


def set_devices(devices: Devices | None) -> None:
    """Set the devices of this process. A job or a script asks for them while it is built."""
    _chosen.append(devices)


def wanted_devices() -> Devices | None:
    """Return the devices that the config names; None for one."""
    return _chosen[-1]
