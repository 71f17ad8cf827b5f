"""Sleep, shutdown and an empty battery with a real logind: runs are saved before the machine stops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.systemd.conftest import NewService
from tests.systemd.machine import TRAINERD, Machine, wait_for
from tests.systemd.service import Service
from trainerd.checkpoints import manifest
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state

UNIT = "trainerd-watch"
FOLDER = "/srv/of-a-person"
CONFIG = f'entry = "trainerd.examples.counter:job"\nlogdir = "{FOLDER}/run"\n[checkpoint]\nsave_model_secs = 3600\n'
# Puts a signal of logind's name onto the bus, for the watcher alone. Any user may.
FORGED = """\
watcher=$(busctl list --unique --no-legend | grep trainerd-watch | cut -d' ' -f1)
exec setpriv --reuid=nobody --clear-groups dbus-send --system --dest=$watcher --type=signal /org/freedesktop/login1 \\
    org.freedesktop.login1.Manager.PrepareForSleep boolean:true
"""


@pytest.fixture
def watcher(machine: Machine) -> Iterator[Machine]:
    """A machine that can sleep, as far as logind sees, and on which the watcher is installed."""
    machine.run("mount", "-o", "remount,rw", "/sys")
    machine.run("mkdir", "-p", "/sys/power")
    machine.run("sh", "-c", "echo 'freeze mem' > /sys/power/state; echo '[s2idle] deep' > /sys/power/mem_sleep")
    machine.run("systemctl", "restart", "systemd-logind")
    said = machine.output(TRAINERD, "install", "--system", "--watch").splitlines()
    for typed in said[-2:]:
        machine.run("sh", "-c", typed)
    machine.write("/etc/trainerd/watch.toml", '[page]\nlisten = ""\n')
    yield machine
    machine.run("systemctl", "stop", UNIT, check=False)
    for path in ("trainerd.service.d", "trainerd@.service.d", f"{UNIT}.service"):
        machine.run("rm", "-r", f"/etc/systemd/system/{path}")
    # The watcher of the next test must not report what happened here.
    machine.run("rm", "-rf", "/etc/trainerd/watch.toml", "/etc/systemd/logind.conf.d", f"/var/lib/{UNIT}")
    machine.run("systemctl", "daemon-reload")


def locks(machine: Machine) -> list[str]:
    """What the watcher's locks delay."""
    lines = machine.output("systemd-inhibit", "--list", "--no-legend").splitlines()
    return sorted(line.split()[5] for line in lines if line.startswith("trainerd "))


def until_it_delays(machine: Machine) -> None:
    """Wait until the watcher has its locks."""
    wait_for("the locks", lambda: locks(machine) == ["shutdown", "sleep"])


def sleep(machine: Machine, one: Service) -> None:
    """Have the machine sleep, and require that the service was saved before it did."""
    until_it_delays(machine)
    power = machine.path("/sys/power/state")
    before, step = power.stat().st_mtime, one.state.step
    machine.run("systemctl", "suspend")
    wait_for("the sleep", lambda: power.stat().st_mtime > before)
    saved = one.state.last_checkpoint
    assert saved is not None and (saved.reason, saved.step >= step) == ("request", True)
    assert saved.at <= power.stat().st_mtime


def test_a_service_is_saved_before_each_sleep_and_continues(watcher: Machine, service: NewService) -> None:
    one = service()
    one.systemctl("start")
    one.wait_until_training()
    watcher.run("systemctl", "start", UNIT)
    for _ in range(2):
        sleep(watcher, one)
        one.wait_for_progress()
    until_it_delays(watcher)
    watcher.run("sh", "-c", FORGED)
    sleep(watcher, one)
    assert len(one.checkpoints("request")) == 3  # the forged signal asked for nothing
    assert "save within 30 s" in watcher.output("journalctl", "-u", UNIT, "-b", "-o", "cat")


def set_ups(machine: Machine, status: str, runtime_secs: int) -> None:
    """Have the UPS say this; its driver looks every few seconds."""
    machine.write("/etc/nut/ups.dev", f"ups.status: {status}\nbattery.runtime: {runtime_secs}\n")


def test_a_service_is_paused_when_the_battery_of_a_ups_is_almost_empty(watcher: Machine, service: NewService) -> None:
    """A real NUT, whose driver reads a file in place of a UPS; `upsc` runs in the watcher's sandbox."""
    watcher.run("ip", "link", "set", "lo", "up")
    watcher.write("/etc/nut/nut.conf", "MODE=standalone\n")
    watcher.write("/etc/nut/ups.conf", "[ups]\ndriver = dummy-ups\nport = ups.dev\nmode = dummy-once\n")
    watcher.write("/etc/nut/upsd.conf", "LISTEN 127.0.0.1 3493\n")
    set_ups(watcher, "OL", 600)
    watcher.run("install", "-d", "-o", "nut", "-g", "nut", "/run/nut")
    watcher.run("systemd-run", "--unit=ups-driver", "/lib/nut/dummy-ups", "-a", "ups", "-D")
    wait_for("the driver", lambda: watcher.path("/run/nut/dummy-ups-ups").exists())
    watcher.run("systemd-run", "--unit=ups-server", "/sbin/upsd", "-D")
    wait_for("upsd", lambda: watcher.run("upsc", "ups@localhost", check=False).stdout)
    watcher.write("/etc/trainerd/watch.toml", '[page]\nlisten = ""\n[interruptions]\nups_name = "ups@localhost"\n')
    one = service()
    one.systemctl("start")
    one.wait_until_training()
    watcher.run("systemctl", "start", UNIT)
    set_ups(watcher, "OB DISCHRG", 600)
    wait_for("the battery", lambda: "OB" in watcher.output("upsc", "ups@localhost", "ups.status"))
    one.wait_for_progress()
    set_ups(watcher, "OB DISCHRG LB", 60)
    assert one.wait_until_over() == "inactive"
    assert one.state.phase is Phase.PAUSED and one.saved_steps[-1] == one.state.step
    log = watcher.output("journalctl", "-u", UNIT, "-b", "-o", "cat")
    assert "the battery of the UPS ups@localhost is almost empty (OB DISCHRG LB, 60 s left): 1 of 1 run paused" in log
    watcher.run("systemctl", "stop", "ups-driver", "ups-server", check=False)


def state_of(machine: Machine) -> State:
    """What the run of a person says of itself."""
    found = read_state(machine.path(f"{FOLDER}/run/state.json"))
    return found if found is not None else State()


def test_a_daemon_is_paused_with_its_last_step_before_a_reboot(watcher: Machine) -> None:
    """SIGTERM cannot be what saves it: systemd kills this one at once."""
    watcher.write(f"{FOLDER}/trainerd.toml", CONFIG)
    watcher.write(f"{FOLDER}/watch.toml", '[page]\nlisten = ""\n')
    home = f"--setenv=HOME={FOLDER}"
    start = (TRAINERD, "start", "--forever", "--config", f"{FOLDER}/trainerd.toml")
    killed = ("--property=Type=forking", "--property=KillSignal=SIGKILL")
    watcher.run("systemd-run", "--unit=of-a-person", *killed, home, *start)
    wait_for("training", lambda: state_of(watcher).phase is Phase.TRAINING)
    watcher.run("systemd-run", "--unit=watcher", home, TRAINERD, "watch", "--config", f"{FOLDER}/watch.toml")
    until_it_delays(watcher)
    watcher.reboot()
    state = state_of(watcher)
    assert state.phase is Phase.PAUSED and "the watcher: the machine shuts down" in (state.ended or "")
    rundir = RunDirectory(watcher.path(f"{FOLDER}/run"))
    assert max(rundir.steps()) == state.step > 0
    manifest.verify(manifest.read(rundir.manifest(state.step)), rundir.path)
    watcher.run("rm", "-r", FOLDER)
