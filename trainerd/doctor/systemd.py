"""The properties that systemd reports of the unit that trains a run, and of this machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainerd.doctor.facts import SystemdService

Properties = Mapping[str, str]

SHOWN = (
    *("LoadState", "UnitFileState", "MainPID", "User", "DynamicUser", "PrivateDevices"),
    *("WatchdogUSec", "TimeoutStopUSec", "NotifyAccess", "MemoryMax"),
)
_SECS = 5.0
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_UNITS |= {"month": 30.44 * 86400, "y": 365.25 * 86400}
_CGROUP = re.compile(r"(?P<slices>.*)/(?P<name>[^/]+)\.service(?:/.*)?")


def ask(command: Sequence[str]) -> Properties:
    """Return the properties that a command of systemd prints as NAME=VALUE lines; none if it cannot be asked."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return dict(line.split("=", 1) for line in lines if "=" in line)


def show(service: SystemdService | None) -> Properties:
    """Return the properties of a unit; none without a unit, or if systemd does not run."""
    if service is None:
        return {}
    found = ask([*service.systemctl.split(), "show", f"--property={','.join(SHOWN)}", f"{service.name}.service"])
    return found if found.get("LoadState") == "loaded" else {}


def service_of(pid: int) -> SystemdService | None:
    """Return the unit whose main process this is, by its control group; None if there is none."""
    try:
        service = service_in(Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        return None
    return service if show(service).get("MainPID") == str(pid) else None


def service_in(cgroup: str) -> SystemdService | None:
    """Return the unit that the text of /proc/PID/cgroup names; None if it names none. `user@1000` is not the unit of a
    run."""
    for line in cgroup.splitlines():
        match = _CGROUP.fullmatch(line.rpartition(":")[2])
        if match and not match["name"].startswith("user@"):
            return SystemdService(match["name"], "/user@" in match["slices"])
    return None


def span(text: str) -> float | None:
    """Return a time span of systemd, such as "1min 30s", in seconds; None for "infinity", "0", and any other text."""
    found = 0.0
    for word in text.split():
        match = re.fullmatch(r"([0-9.]+)([a-z]+)", word)
        if match is None or match[2] not in _UNITS:
            return None
        found += float(match[1]) * _UNITS[match[2]]
    return found or None
