"""What the tutorials say of systemd, typed as their readers type it, across a reboot: one machine, and a second one.

tests/packaging types the rest of these pages, on a system without systemd.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pages import ROOT, script_of, write_files
from tests.systemd import machine as machines
from tests.systemd.cable import ADDRESSES, CABLE, join
from tests.systemd.machine import UP, Machine, wait_for
from tests.systemd.overlay import PREFIX
from tests.systemd.service import Service
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

USERS = {  # by page: the readers whose unit is their own
    "docs/tutorials/keras-script.md": "alice",
    "docs/tutorials/tf1-program.md": "bob",
    "docs/start.md": "carol",
}
CLUSTER = ROOT / "docs" / "tutorials" / "many-machines.md"
LONGEST_SECS = 300.0  # five runs start on as few processors as there are
ACTIVATED = f"{PREFIX}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
# The commands of a page that write files. Those that train are left out here.
WRITES = re.compile(r"^(?:cat > .*?^END$|(?:trainerd init|cd) .*?$)", re.MULTILINE | re.DOTALL)
# What a machine has that waits for its network at boot, such as systemd-networkd-wait-online.
ONLINE = f"""\
[Unit]
Before=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'until ip -4 address | grep -F {ADDRESSES[0]}/; do sleep 0.2; done'
[Install]
WantedBy=network-online.target
"""


@dataclass
class Reader:
    """A user who types a page on a machine.

    Attributes:
      machine: where.
      name: the user's.
      page: relative to the checkout.
      folder: the directory that the user is in.
    """

    machine: Machine
    name: str
    page: str
    folder: str

    def type(self, text: str) -> str:
        """Type commands. Return what they print to standard output."""
        words = ["runuser", "--user", self.name, "--", "env", f"--chdir={self.folder}", f"PATH={ACTIVATED}"]
        environment = {"XDG_RUNTIME_DIR": f"/run/user/{self._uid}", "HOME": f"/home/{self.name}", "USER": self.name}
        done = self.machine.run(*words, "bash", "-euc", text, environment=environment, timeout=LONGEST_SECS)
        return done.stdout.strip()

    def begin(self) -> None:
        """Log in, save the files of the page, and type it up to the reboot."""
        self.machine.run("useradd", "--create-home", "--shell", "/bin/bash", self.name)
        self.machine.run("systemctl", "start", f"user@{self._uid}")  # what a login does
        self.machine.run("mkdir", self.folder)
        write_files(ROOT / self.page, self.machine.path(self.folder))
        self.machine.run("chown", "-R", f"{self.name}:", self.folder)
        writes = "\n".join(WRITES.findall(script_of(ROOT / self.page)))
        self.folder = self.type(f"{writes}\npwd").splitlines()[-1]
        self.type(script_of(ROOT / self.page, "boot"))
        self.wait_until_training()

    def wait_until_training(self) -> None:
        """Wait until the run trains, and have it give way to others."""

        def pid() -> int | None:
            [path] = self.machine.path(f"{self.folder}/runs").iterdir()
            state = read_state(RunDirectory(path).state)
            return state.pid if state is not None and state.phase is Phase.TRAINING else None

        give_way(self.machine, wait_for(f"the run of {self.page} to train", pid, seconds=LONGEST_SECS))

    @property
    def _uid(self) -> str:
        return self.machine.output("id", "--user", self.name)


@dataclass
class Worker:
    """The reader of the page on many machines, at one of them. It has no sudo: root types it."""

    machine: Machine
    rank: int
    folder: str = "/root/many"

    @property
    def service(self) -> Service:
        """The service of the page."""
        return Service(self.machine, "many")

    def wait_until_training(self) -> None:
        """Wait until the worker trains, and have it give way to others."""
        wait_for("the worker to train", lambda: self.service.show("ActiveState") == "active", seconds=LONGEST_SECS)
        give_way(self.machine, self.service.pid)

    def type(self, mark: str) -> str:
        """Type the commands with a mark. Return what they print to standard output."""
        text = script_of(CLUSTER, mark).replace("rank=0 ", f"rank={self.rank} ")
        script = f'sudo() {{ "$@"; }}\ncd {self.folder}\n{text}'
        done = self.machine.run("env", f"PATH={ACTIVATED}", "bash", "-euc", script, timeout=LONGEST_SECS)
        return done.stdout.strip()


def give_way(machine: Machine, pid: int) -> None:
    """Raise the nice value of a run that trains, so that the others start sooner. Each thread has its own."""
    outer = machine.outer_pid(pid)
    for thread in Path(f"/proc/{outer}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, int(thread.name), min(19, os.getpriority(os.PRIO_PROCESS, outer) + 10))


@pytest.fixture(scope="module")
def readers(machine: Machine) -> Iterator[tuple[list[Reader], list[Worker]]]:
    """Four readers whose machine has been rebooted: three with a unit of their own, one with a second machine."""
    with machines.machine("tutorial") as first:
        people = [Reader(first, name, page, f"/home/{name}/train") for page, name in USERS.items()]
        workers = [Worker(first, 0), Worker(machine, 1)]
        join(first, machine)
        begin_on_both(*workers)
        for person in people:
            person.begin()
        for worker in workers:
            worker.wait_until_training()
        reboot(people, workers)
        yield people, workers
        first.run("ip", "link", "delete", CABLE)
        workers[1].service.remove()
        machine.run("rm", "-r", workers[1].folder, "/etc/trainerd/job.py", "/etc/trainerd/many.toml")


def begin_on_both(first: Worker, second: Worker) -> None:
    """Type the page on many machines up to the reboot."""
    for worker in (first, second):
        worker.machine.run("mkdir", worker.folder)
    write_files(CLUSTER, first.machine.path(first.folder))
    first.type("boot: first machine")
    token = first.machine.path(f"{first.folder}/cluster.token")
    wait_for("the token", token.exists)
    for name in ("job.py", "trainerd.toml", "cluster.token"):  # what scp does
        second.machine.write(f"{second.folder}/{name}", first.machine.path(f"{first.folder}/{name}").read_text())
    second.machine.path(f"{second.folder}/cluster.token").chmod(0o600)
    second.type("boot: second machine")
    for worker in (first, second):
        worker.type("boot: both machines")


def reboot(people: list[Reader], workers: list[Worker]) -> None:
    """Reboot the machine, and wait until all train again. Its network comes late: when the users' units train."""
    first, second = workers
    first.machine.write("/etc/systemd/system/online.service", ONLINE)
    first.machine.run("systemctl", "enable", "online")
    first.machine.reboot(states=("starting", *UP))
    for person in people:
        person.wait_until_training()  # with nobody logged in
    join(first.machine, second.machine)
    second.type("rebooted: second machine")
    for worker in workers:
        worker.wait_until_training()


@pytest.mark.parametrize("index", range(len(USERS)), ids=[name.removesuffix(".md").split("/")[-1] for name in USERS])
def test_a_unit_of_a_user_survives_a_reboot_without_a_login(
    readers: tuple[list[Reader], list[Worker]], index: int
) -> None:
    person = readers[0][index]
    said = person.type(script_of(ROOT / person.page, "rebooted"))
    paused, resumed = (re.findall(rf" {kind}\s+step ([\d,]+)", said)[-1] for kind in ("pause", "resume"))
    assert paused == resumed, said
    person.type("systemctl --user stop trainerd")
    assert "paused" in person.type("trainerd status")


def test_the_workers_of_two_machines_survive_a_reboot_of_one(readers: tuple[list[Reader], list[Worker]]) -> None:
    first, second = readers[1]
    for worker in (first, second):
        assert "training" in worker.type("rebooted: both machines")
    service = first.service
    resumed, *_ = service.first_steps()
    assert resumed - 1 in service.saved_steps, "it resumes after the step of the shutdown"
    service.wait_for_progress()
