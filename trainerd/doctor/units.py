"""The unit that trains the run: its deadlines beside what was measured, lingering, the next boot."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

from trainerd import text
from trainerd.doctor.facts import Facts, SystemdService
from trainerd.doctor.finding import Finding, problem, warning, well
from trainerd.doctor.systemd import Properties, span

_LINGERING = Path("/var/lib/systemd/linger")
_EDIT = "`{} edit {}`, and set under [Service]: {}"


def check(facts: Facts) -> Iterator[Finding]:
    """Check the unit that trains this config."""
    service, properties = facts.service, facts.properties
    if service is None:
        yield well("no unit of systemd is known to train this config")
    elif not properties:
        yield well(f"systemctl reports nothing about {service.name} here")
    else:
        found = [*watchdog(service, properties, facts.step_secs)]
        found += stopping(service, properties, facts.step_secs, facts.save_secs)
        if service.user:
            found += lingering(service, getpass.getuser(), _LINGERING)
        found += booting(service, properties)
        yield from found or [well(f"{service.name}: its deadlines are longer than what was measured")]


def watchdog(service: SystemdService, properties: Properties, step_secs: float | None) -> Iterator[Finding]:
    """Yield a finding if a step is longer than the watchdog waits, or nearly so."""
    limit = span(properties.get("WatchdogUSec", ""))
    if limit is None or step_secs is None or step_secs < limit / 2:
        return
    compared = f"a step takes {text.seconds(step_secs)}, and WatchdogSec= of {service.name} is {text.seconds(limit)}"
    cure = _edit(service, f"WatchdogSec={_minutes(4 * step_secs)}")
    if step_secs >= limit:
        yield problem(f"{compared}: each step is taken for one that hangs, and the trainer is aborted", cure)
    else:
        yield warning(f"{compared}: a step that takes twice as long as most is aborted", cure)


def stopping(
    service: SystemdService, properties: Properties, step_secs: float | None, save_secs: float | None
) -> Iterator[Finding]:
    """Yield a finding if a stop has no time for the step under way and for the last save."""
    limit = span(properties.get("TimeoutStopUSec", ""))
    step, save = step_secs or 0.0, save_secs or 0.0
    if limit is None or step + save < limit:
        return
    compared = (
        f"a stop takes a step of {text.seconds(step)} and a save of {text.seconds(save)}, and TimeoutStopSec= of "
        f"{service.name} is {text.seconds(limit)}"
    )
    cure = _edit(service, f"TimeoutStopSec={_minutes(2 * (step + save))}")
    if step >= limit or properties.get("NotifyAccess") == "none":
        yield problem(f"{compared}: the trainer is killed before its last save is done", cure)
    else:
        said = f"{compared}: trainerd must ask systemd for more time, which it gets while bytes are written"
        yield warning(said, cure)


def lingering(service: SystemdService, user: str, folder: Path) -> Iterator[Finding]:
    """Yield a finding if a user's own unit stops when the user logs out; `folder` has a file for each user that
    lingers."""
    if not (folder / user).exists():
        yield problem(
            f"{service.name} is a unit of {user}, who does not linger: it is stopped when {user} logs out, and "
            "does not start at boot",
            f"`loginctl enable-linger {user}`.",
        )


def booting(service: SystemdService, properties: Properties) -> Iterator[Finding]:
    """Yield a finding if the unit does not start at the next boot."""
    if properties.get("UnitFileState") == "disabled":
        yield warning(
            f"{service.name} is not enabled: after a reboot nothing trains",
            f"`{service.systemctl} enable {service.name}`.",
        )


def _edit(service: SystemdService, setting: str) -> str:
    return _EDIT.format(service.systemctl, service.name, setting)


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))}min"
