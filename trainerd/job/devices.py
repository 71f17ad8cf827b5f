"""The devices of this process that train one model together, as the config names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trainerd.errors import EntryError
from trainerd.system.process_wide import process_wide

Devices = Literal["all"] | int | tuple[str, ...]
_chosen = process_wide("devices", list[Devices | None]([None]))


def set_devices(devices: Devices | None) -> None:
    """Set the devices of this process. A job or a script asks for them while it is built."""
    _chosen.append(devices)


def wanted_devices() -> Devices | None:
    """Return the devices that the config names; None for one."""
    return _chosen[-1]


def named(devices: Devices, there: Sequence[str]) -> list[str]:
    """Return the names of the devices that a config names.

    Args:
      devices: those of the config.
      there: the names of those that this process can use.

    Raises:
      EntryError: there are fewer, or none of such a name.
    """
    if devices == "all":
        return list(there)
    if isinstance(devices, int):
        if devices > len(there):
            raise EntryError(f"devices = {devices}, and this process can use {len(there)}: {', '.join(there)}.")
        return list(there[:devices])
    if twice := [name for name in devices if devices.count(name) > 1]:
        raise EntryError(f"devices: {twice[0]!r} is listed twice.")
    if missing := [name for name in devices if name not in there]:
        raise EntryError(f"devices: {missing[0]!r} does not exist. This process can use {', '.join(there)}.")
    return list(devices)
