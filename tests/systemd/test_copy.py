"""The copy of a service's run, by a service of its own beside it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.systemd.conftest import NewService
from tests.systemd.machine import TRAINERD, wait_for
from tests.systemd.overlay import PREFIX
from tests.systemd.service import COUNTER, Service
from trainerd.copies.status import read_copy_status

UNIT = Path("/etc/systemd/system/trainerd-copy@.service")
MOST_EXPOSURE = 20  # tenths: it has a network
COPY = '[copy]\nto = "rclone://nas/srv/copies/run"\n'


def copied(service: Service) -> list[int]:
    """The steps that are copied."""
    status = read_copy_status(service.rundir)
    assert status is None or status.error is None, status
    return status.steps if status is not None else []


def test_a_service_copies_the_run_of_another(service: NewService) -> None:
    """With credentials that only root can read, through rclone, in its sandbox."""
    one = service(COUNTER, COPY)
    machine, name = one.machine, one.name
    shutil.copy(Path(sys.executable).with_name("rclone"), machine.path(PREFIX / "bin" / "rclone"))
    machine.run("mkdir", "--mode=777", "-p", "/srv/copies")
    machine.write(f"/etc/trainerd/{name}-rclone.conf", "[nas]\ntype = local\n")
    machine.run("chmod", "600", f"/etc/trainerd/{name}-rclone.conf")
    machine.write(f"{UNIT}.d/nas.conf", "[Service]\nReadWritePaths=/srv/copies\n")
    machine.run("systemctl", "daemon-reload")
    done = machine.run("systemd-analyze", "verify", UNIT)
    assert done.stdout + done.stderr == ""
    machine.run("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", UNIT)

    one.systemctl("start")
    one.wait_until_training()
    machine.run("systemctl", "start", f"trainerd-copy@{name}")
    try:
        one.systemctl("kill", "--signal=USR1")
        wait_for("the copy", lambda: copied(one))
        one.systemctl("stop")
        last = max(one.saved_steps)
        wait_for("the last step", lambda: last in copied(one))
    finally:
        machine.run("systemctl", "stop", f"trainerd-copy@{name}", check=False)
        machine.run("rm", "-r", UNIT, f"{UNIT}.d")
        machine.run("systemctl", "daemon-reload")
    machine.run(TRAINERD, "fetch", "file:///srv/copies/run", "/root/back", str(last))
    state = json.loads(machine.output("cat", "/root/back/run/state.json"))
    assert state["phase"] == "paused" and state["step"] == last
