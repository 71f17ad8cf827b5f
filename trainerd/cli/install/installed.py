"""The unit that trains a config, of those that `trainerd install` writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainerd.cli.install.plan import config_argument, config_folder, unit_folder
from trainerd.daemon.systemd import units
from trainerd.doctor.facts import SystemdService
from trainerd.system.machine import NAME


def service_of(config_path: Path) -> SystemdService | None:
    """Return the unit whose command names this config; the machine's own before the user's. None for none."""
    return next(_services(config_path), None)


def _services(config_path: Path) -> Iterator[SystemdService]:
    for user in (False, True):
        if _runs(unit_folder(user) / f"{NAME}.service", config_path, user, None):
            yield SystemdService(NAME, user)
        name, template = config_path.stem, unit_folder(user) / f"{NAME}@.service"
        if config_path == config_folder(user) / f"{name}.toml" and _runs(template, config_path, user, name):
            yield SystemdService(f"{NAME}@{name}", user)


def _runs(unit: Path, config_path: Path, user: bool, name: str | None) -> bool:
    """Return whether the command of a unit trains the config."""
    try:
        ending = f" run --config {config_argument(config_path, user, name)}"
        text = unit.read_text(encoding="utf-8")
    except (OSError, ValueError):  # it is not there, or not for this user; no unit can name the config
        return False
    return any(each.name == "ExecStart" and each.value.endswith(ending) for each in units.directives(text))
