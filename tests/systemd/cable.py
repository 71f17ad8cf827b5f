"""A cable between two machines."""

from __future__ import annotations

from tests.systemd.machine import Machine, host

ADDRESSES = ("10.0.0.1", "10.0.0.2")
CABLE = "cable"


def join(first: Machine, second: Machine) -> None:
    """Lay a cable from one to the other. It is gone when one of them is switched off or rebooted."""
    ends = [str(each.first_process) for each in (first, second)]
    host("ip", "link", "add", CABLE, "netns", ends[0], "type", "veth", "peer", "name", CABLE, "netns", ends[1])
    for each, address in zip((first, second), ADDRESSES, strict=True):
        each.run("ip", "address", "add", f"{address}/24", "dev", CABLE)
        each.run("ip", "link", "set", CABLE, "up")
