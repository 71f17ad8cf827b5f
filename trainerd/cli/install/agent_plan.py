"""The plan of `trainerd install --agent`: the unit of the agent, for one user or for those of the machine."""

from __future__ import annotations

import os
from pathlib import Path

from trainerd.agent.settings import FILE
from trainerd.cli.install import plan as install_plan
from trainerd.cli.install.plan import File, Plan
from trainerd.daemon.systemd import units
from trainerd.doctor.facts import SystemdService
from trainerd.system.machine import NAME

UNIT, TEMPLATE = f"{NAME}-agent.service", f"{NAME}-agent@.service"
_CONFIG = """\
# How many runs of the queue train at a time, and on what: docs/guides/several-runs.md has every key.

# slots = 1
# gpus = [0, 1]
# share = "2h"
"""


def make_agent_plan(user: bool) -> Plan:
    """Decide what to write: a unit of the machine has an instance for each user, whose own files it reads.

    Raises:
      UsageError: the user could not run this Python, or systemd not this path.
    """
    template = install_plan.read_template(TEMPLATE)
    text = units.render(template, f"{install_plan.program()} agent", user=user)
    folder = install_plan.unit_folder(user)
    if user:
        config = File(install_plan.config_folder(user) / FILE, _CONFIG, is_kept=True)
        return Plan((config, File(folder / UNIT, text)), config.path, SystemdService(UNIT, user))
    install_plan.require_reachable_python("install --system --agent")
    service = SystemdService(f"{NAME}-agent@{os.environ.get('SUDO_USER', 'USER')}", user)
    return Plan((File(folder / TEMPLATE, text),), Path("~/.config", NAME, FILE), service)
