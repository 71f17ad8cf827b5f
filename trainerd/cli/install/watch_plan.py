"""The plan of `trainerd install --watch`: the watcher's unit, and what the trainers' units need for its page."""

from __future__ import annotations

from trainerd.cli.install import plan as install_plan
from trainerd.cli.install.plan import File, Plan
from trainerd.daemon.systemd import units
from trainerd.doctor.facts import SystemdService
from trainerd.system import machine
from trainerd.system.machine import NAME, WATCHER
from trainerd.watch.settings import FILE

UNIT = f"{WATCHER}.service"
_GROUP = f"""\
# The watcher's group may put `pause` and `save` into the folder `requests` of the run directory, and nothing else
# anywhere. `trainerd install --watch` wrote this; without it the watcher's page has no buttons for services.
[Service]
Group={WATCHER}
Environment=TRAINERD_GROUP_MAY_ASK=1
"""
_USER = f'u {WATCHER} - "trainerd\'s watcher"\n'
_CONFIG = """\
# Whom the watcher notifies, and of what: every key is in docs/watch.md. `trainerd watch --test` tries the channels.

[watch]
# channels = ["ntfy://ntfy.sh/a-long-topic-that-nobody-guesses"]
# summary_at = "08:00"

[page]
# listen = "127.0.0.1:9780"

[interruptions]
# sleep = "save"
# shutdown = "pause"
# cloud = "aws"
# ups_name = "ups@localhost"
"""
# What logind waits for the watcher's runs before the machine sleeps or shuts down, in seconds. Its default is 5.
_DELAY_SECS = 30
DELAY = f"To have the machine wait up to {_DELAY_SECS} s for saves before it sleeps or shuts down, and not 5 s:"


def delay_commands(sudo: str) -> list[str]:
    """Return the commands that raise logind's limit.

    Args:
      sudo: what is typed before what needs root.
    """
    path = machine.MACHINE.logind / f"{NAME}.conf"
    return [
        f"printf '[Login]\\nInhibitDelayMaxSec={_DELAY_SECS}\\n' | {sudo}install -D -m 644 /dev/stdin {path}",
        f"{sudo}systemctl kill -s HUP systemd-logind",
    ]


def make_watch_plan(user: bool) -> Plan:
    """Decide what to write, after checking that it can work.

    Raises:
      UsageError: the service could not run this Python, or systemd not this path.
    """
    template = install_plan.read_template(UNIT)
    program = install_plan.program()
    folder = install_plan.unit_folder(user)
    config = File(install_plan.config_folder(user) / FILE, _CONFIG, 0o600, is_kept=True)
    if user:
        text = units.render(template, f"{program} watch", user=True)
        return Plan((config, File(folder / UNIT, text)), config.path, SystemdService(UNIT, user))
    install_plan.require_reachable_python("install --watch", "[watch]")
    drop_ins = [File(folder / f"{unit}.d" / "watch.conf", _GROUP) for unit in (f"{NAME}.service", f"{NAME}@.service")]
    unit = File(folder / UNIT, units.render(template, f"{program} watch --config %d/{FILE}"))
    owner = File(machine.MACHINE.users / f"{WATCHER}.conf", _USER)
    return Plan((owner, config, *drop_ins, unit), config.path, SystemdService(UNIT, user))
