"""The plan of `trainerd install --agent`: the unit of the agent, for a user."""

from __future__ import annotations

from trainerd.agent.settings import FILE
from trainerd.cli.install import plan as install_plan
from trainerd.cli.install.plan import File, Plan
from trainerd.daemon.systemd import units
from trainerd.doctor.facts import SystemdService
from trainerd.errors import UsageError
from trainerd.system.machine import NAME

UNIT = f"{NAME}-agent.service"
_CONFIG = """\
# How many runs of the queue train at a time, and on what: docs/guides/several-runs.md has every key.

# slots = 1
# gpus = [0, 1]
# share = "2h"
"""


def make_agent_plan() -> Plan:
    """Decide what to write.

    Raises:
      UsageError: systemd cannot run this Python.
    """
    template = install_plan.read_template(UNIT)
    try:
        text = units.render(template, f"{install_plan.program()} agent", user=True)
    except ValueError as error:
        raise UsageError(f"{error}. Move it.") from None
    config = File(install_plan.config_folder(user=True) / FILE, _CONFIG, is_kept=True)
    unit = File(install_plan.unit_folder(user=True) / UNIT, text)
    return Plan((config, unit), config.path, SystemdService(UNIT, user=True))
