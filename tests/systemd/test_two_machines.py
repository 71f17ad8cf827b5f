"""One run on two booted machines, joined by a cable that can be cut: the recipe of docs/many-machines.md, as written.

`-s` shows how long things took.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.systemd import machine as machines
from tests.systemd.cable import ADDRESSES, CABLE, join
from tests.systemd.machine import TRAINERD, Machine, wait_for
from tests.systemd.overlay import CHECKOUT
from tests.systemd.service import Service
from tests.waiting import require_for
from trainerd.rundir.state import Phase, read_state

NAME = "blobs"
TOKEN = f"/var/lib/trainerd-{NAME}/cluster.token"
HEARTBEAT_SECS = 8
START_SECS = 4
CLUSTER = f"""
[cluster]
workers = ["{ADDRESSES[0]}:29500", "{ADDRESSES[1]}:29500"]
token = "{TOKEN}"
heartbeat_secs = {HEARTBEAT_SECS}
"""


@dataclass
class TwoMachines:
    """The services of the chief and of the other worker, each on its own machine."""

    chief: Service
    other: Service

    @property
    def services(self) -> tuple[Service, Service]:
        return self.chief, self.other

    def start(self) -> None:
        """Start both, and wait until they train."""
        for service in self.services:
            service.systemctl("start", "--no-block")
        self.wait_until_training()

    def wait_until_training(self) -> None:
        """Wait until the chief has trained a step with the other, and goes on."""
        wait_for(
            "both to train", lambda: all(each.show("ActiveState") == "active" for each in self.services), seconds=90
        )
        self.chief.wait_until_training()
        self.chief.wait_for_progress()

    def save(self) -> int:
        """Have a checkpoint made, and wait until there are further steps. Its step."""
        before = self.chief.checkpoints("request")
        self.chief.systemctl("kill", "--signal=USR1", "--kill-whom=main")
        steps = wait_for("a checkpoint", lambda: self.chief.checkpoints("request")[len(before) :])
        self.chief.wait_for_progress()
        return steps[-1]

    def restarts(self) -> list[int]:
        """How often systemd has started each again."""
        return [int(each.show("NRestarts")) for each in self.services]

    def wait_for_restarts(self, before: list[int], seconds: float) -> None:
        """Wait until systemd has started each again once."""
        expected = [count + 1 for count in before]
        wait_for("both to be started again", lambda: self.restarts() == expected, seconds=seconds)

    def cut(self) -> None:
        """Pull the cable out."""
        self.other.machine.run("ip", "link", "set", CABLE, "down")

    def mend(self) -> None:
        """Put the cable back."""
        self.other.machine.run("ip", "link", "set", CABLE, "up")


@pytest.fixture(scope="module")
def two(machine: Machine) -> Iterator[TwoMachines]:
    """A machine beside that of the other tests, a cable between the two, and a service on each."""
    with machines.machine("second") as second:
        join(machine, second)
        made = TwoMachines(*(prepared(each, rank) for rank, each in enumerate((machine, second))))
        copy_token(made)
        yield made
        for service in made.services:
            service.remove()
    assert second.leftovers() == []


def prepared(machine: Machine, rank: int) -> Service:
    """The service of a worker: the config, `trainerd install`, and what the page puts into `systemctl edit`."""
    machine.write("/etc/trainerd/worker_jobs.py", (CHECKOUT / "tests" / "cluster" / "jobs.py").read_text())
    service = Service(machine, NAME)
    service.configure("worker_jobs:shared", CLUSTER)
    service.install()
    recipe = drop_in().replace("TRAINERD_RANK=1", f"TRAINERD_RANK={rank}")
    folder = f"/etc/systemd/system/{service.unit}.service.d"
    machine.write(f"{folder}/override.conf", recipe)
    # A start that takes longer than this says so to systemd; gathering may take days.
    machine.write(f"{folder}/sooner.conf", f"[Service]\nRestartSec=100ms\nTimeoutStartSec={START_SECS}s\n")
    machine.run("systemctl", "daemon-reload")
    return service


def drop_in() -> str:
    """The text that the page shows for `systemctl edit`."""
    page = (CHECKOUT / "docs" / "many-machines.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```ini\n(\[Unit\]\n[^`]*Environment=TRAINERD_RANK=1\n.*?)```", page, re.DOTALL)
    return str(text)


def copy_token(two: TwoMachines) -> None:
    """The chief makes the secret when it first starts; a person copies it, as the page says."""
    two.chief.systemctl("start", "--no-block")
    token = wait_for("the token", lambda: read_token(two.chief.machine))
    two.other.machine.write(TOKEN, token)
    two.other.machine.path(TOKEN).chmod(0o600)


def read_token(machine: Machine) -> str:
    """The secret, once it is there."""
    path = machine.path(TOKEN.replace("/lib/", "/lib/private/", 1))
    return path.read_text() if path.exists() else ""


def test_a_start_waits_for_the_other_machine_and_names_it(two: TwoMachines) -> None:
    """For longer than systemd gives a start, which hears each time that it takes longer."""
    two.chief.systemctl("start", "--no-block")
    require_for(START_SECS + 2, lambda: two.chief.show("ActiveState") == "activating", "it is still being started")
    assert two.restarts()[0] == 0
    shown = two.chief.machine.output(TRAINERD, "status", "--config", two.chief.config)
    assert "gathering" in shown
    assert f"1 ({ADDRESSES[1]}:29500)" in shown


def test_a_stop_on_one_machine_stops_both_at_one_step(two: TwoMachines) -> None:
    """Each ends with 0 and stays off, and there is one checkpoint, at the chief."""
    two.start()
    begun = time.monotonic()
    two.other.systemctl("stop")
    assert [each.wait_until_over() for each in two.services] == ["inactive", "inactive"]
    print(f"stopped after {time.monotonic() - begun:.2f} s")
    assert [each.show("ExecMainStatus") for each in two.services] == ["0", "0"]
    assert two.chief.state.phase is Phase.PAUSED
    paused = read_state(two.other.rundir.worker(1).state)
    assert paused is not None
    assert paused.step == two.chief.state.step == two.chief.saved_steps[-1]
    two.start()
    assert two.chief.first_steps()[-1] == paused.step + 1


def test_a_killed_worker_is_started_again_and_so_is_the_chief(two: TwoMachines) -> None:
    two.start()
    step, before, begun = two.save(), two.restarts(), time.monotonic()
    two.other.machine.run("kill", "-KILL", str(two.other.pid))
    two.wait_for_restarts(before, seconds=10)
    two.wait_until_training()
    print(f"trains again after {time.monotonic() - begun:.1f} s")
    assert two.chief.first_steps()[-1] > step, "the chief may have a later state in memory"


def test_a_cable_that_is_cut_and_put_back(two: TwoMachines) -> None:
    """Both end within the heartbeat and five seconds, wait for each other, and go on when they can."""
    two.start()
    step, before, begun = two.save(), two.restarts(), time.monotonic()
    two.cut()
    two.wait_for_restarts(before, seconds=HEARTBEAT_SECS + 5)
    print(f"both ended {time.monotonic() - begun:.1f} s after the cut")
    once = [count + 1 for count in before]
    require_for(START_SECS + 2, lambda: two.restarts() == once, "they wait for each other, and do not give up")
    begun = time.monotonic()
    two.mend()
    two.wait_until_training()
    print(f"trains again {time.monotonic() - begun:.1f} s after the cable is back")
    assert two.chief.first_steps()[-1] > step, "the chief may have a later state in memory"


def test_the_drop_in_leaves_the_sandbox_as_it_is(two: TwoMachines) -> None:
    """But for the network, which it opens for the other worker alone."""
    shown = two.chief.machine.run("systemd-analyze", "security", two.chief.unit, check=False).stdout
    exposure = float(re.search(r"exposure level for .*: ([\d.]+)", shown)[1])  # type: ignore[index]
    assert exposure <= 3.0
    assert set(two.chief.show("IPAddressAllow").split()) == {f"{address}/32" for address in ADDRESSES}
