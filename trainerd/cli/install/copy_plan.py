"""The part of the plan of `trainerd install` that is for a run whose config has `[copy]`: the copier's unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from trainerd.cli.install import plan as install_plan
from trainerd.cli.install.plan import File, Plan
from trainerd.config import parse as configs
from trainerd.config.destination import Destination
from trainerd.daemon.systemd import units
from trainerd.doctor.facts import SystemdService
from trainerd.system.machine import NAME

_TEMPLATE = f"{NAME}-copy@.service"
_MAY_WRITE = """\
# The folder that holds the destination. `trainerd install` wrote this.
[Unit]
RequiresMountsFor={folder}

[Service]
ReadWritePaths={folder}
"""


def with_copier(plan: Plan, name: str | None) -> Plan:
    """Add the unit of the copier to the plan of a run, if its config has a destination.

    Args:
      plan: the plan of the run.
      name: the name of the run, of several.

    Raises:
      ConfigError: the config is wrong.
      UsageError: systemd cannot run this Python, or name the destination.
    """
    to, user = configs.load(plan.config).copy.to, plan.service.user
    if to is None:
        return plan
    template = install_plan.read_template(_TEMPLATE)
    unit = _TEMPLATE
    if name is None:
        template, unit = units.without_instance(template), _TEMPLATE.replace("@", "")
    copier = SystemdService(plan.service.name.replace(NAME, f"{NAME}-copy", 1), user)
    folder = install_plan.unit_folder(user)
    command = f"{install_plan.program()} copy --config {install_plan.config_argument(plan.config, user, name)}"
    files = [File(folder / unit, units.render(template, command, user=user))]
    destination = Destination.parse(to)
    if destination.scheme == "file" and not user:
        path = PurePath(destination.path)
        text = _MAY_WRITE.format(folder=units.quote_path(str(path.parent if path.parent.name else path)))
        files.append(File(folder / f"{copier.name}.service.d" / "destination.conf", text))
    return replace(plan, files=(*plan.files, *files), copier=copier)
