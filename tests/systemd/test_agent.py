"""The agent of a user's queue in a booted system: it is killed again and again, and the machine reboots."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.systemd import machine as machines
from tests.systemd.machine import TRAINERD, Machine, wait_for
from tests.systemd.overlay import PREFIX

LONG = os.environ.get("TORTURE") == "long"
RUNS, KILLS, REBOOTS = (100, 500, 3) if LONG else (5, 12, 1)
STEPS = 60_000
JOB = """\
import tensorflow as tf
import trainerd


def make() -> trainerd.Job:
    seen = tf.Variable(0, dtype=tf.int64)
    data = tf.data.Dataset.range(1000).shuffle(1000, seed=1).repeat()

    def train_step(x):
        seen.assign(seen * 31 + x)  # 31 has an inverse modulo 2**64: no later step hides an earlier one
        return {"digest": seen % 1_000_003}

    return trainerd.Job(train_step, dataset=data, state={"seen": seen})
"""


@dataclass
class User:
    """A user of the machine, whose service manager runs without a login, unless the user does not linger."""

    machine: Machine
    name: str

    @classmethod
    def make(cls, machine: Machine, name: str, *, lingers: bool = True) -> User:
        machine.run("useradd", "--create-home", "--shell", "/bin/bash", name)
        user = cls(machine, name)
        if lingers:
            machine.run("mkdir", "--parents", "/var/lib/systemd/linger")
            machine.run("touch", f"/var/lib/systemd/linger/{name}")
            machine.run("systemctl", "start", f"user@{user.uid}")
        return user

    @property
    def uid(self) -> str:
        return self.machine.output("id", "--user", self.name)

    def type(self, text: str, *, check: bool = True) -> str:
        home = f"/home/{self.name}"
        path = f"{PREFIX}/bin:/usr/local/bin:/usr/bin:/bin"
        environment = {"XDG_RUNTIME_DIR": f"/run/user/{self.uid}", "HOME": home, "USER": self.name}
        words = ["runuser", "--user", self.name, "--", "env", f"--chdir={home}", f"PATH={path}", "bash", "-euc", text]
        return self.machine.run(*words, environment=environment, check=check).stdout.strip()

    def queue(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.type("trainerd queue --json"))
        return found

    def add(self, name: str, *arguments: str) -> None:
        home = f"/home/{self.name}"
        self.machine.write(f"{home}/job.py", JOB)
        config = f'entry = "job:make"\nname = "{name}"\nlogdir = "runs/{name}"\nmax_steps = {STEPS}\n'
        self.machine.write(f"{home}/{name}.toml", config)
        self.machine.run("chown", "-R", f"{self.name}:", home)
        self.type(f"trainerd queue add --config {name}.toml {' '.join(arguments)}")

    def stage(self, name: str) -> str:
        [found] = [entry["stage"] for entry in self.queue() if entry["name"] == name]
        return str(found)

    def install_agent(self, slots: int) -> None:
        self.type("trainerd install --agent")
        self.type(f"echo 'slots = {slots}' > ~/.config/trainerd/agent.toml")
        self.type("systemctl --user enable --now trainerd-agent")

    def kill_agent(self) -> None:
        self.type("systemctl --user kill -s KILL trainerd-agent", check=False)

    def end(self, name: str) -> tuple[int, float]:
        """The last step of a run, and a digest of the batches of all steps in their order."""
        state = json.loads(self.type(f"trainerd status runs/{name} --json"))
        return state["step"], state["metrics"]["digest"]


@pytest.fixture
def booted() -> Iterator[Machine]:
    """A machine of the test's own, which it reboots."""
    with machines.machine("agent") as machine:
        yield machine


def test_no_run_is_lost_or_trained_twice(booted: Machine) -> None:
    alice, bob = User.make(booted, "alice"), User.make(booted, "bob")
    bob.add("alone")
    bob.type("trainerd run --config alone.toml")
    alice.install_agent(2)
    bob.install_agent(1)
    names = [f"run{number}" for number in range(RUNS)]
    for number, name in enumerate(names):
        alice.add(name, "--priority", str(number % 3))
    for kill in range(KILLS):
        done = sum(entry["stage"] == "done" for entry in alice.queue())
        assert len([entry for entry in alice.queue() if entry["stage"] in ("training", "pausing")]) <= 2
        if kill and kill % (KILLS // (REBOOTS + 1)) == 0 and done < RUNS:
            booted.reboot()
        alice.kill_agent()
    wait_for("all runs to be done", lambda: all(e["stage"] == "done" for e in alice.queue()), seconds=60 + 10 * RUNS)
    assert [entry["stage"] for entry in bob.queue()] == ["done"]
    for name in names:
        events = json.loads(alice.type(f"trainerd events runs/{name} --json"))
        kinds = [event["kind"] for event in events]
        assert kinds.count("finish") == 1 and not {"killed", "reboot"} & {*kinds}, events  # a shutdown saves them
        assert alice.end(name) == bob.end("alone")


def test_a_unit_of_the_machine_trains_the_queue_of_a_user(machine: Machine) -> None:
    dave = User.make(machine, "dave", lingers=False)
    said = machine.output(TRAINERD, "install", "--agent")
    assert "systemctl enable --now trainerd-agent@USER" in said
    agent = "trainerd-agent@dave"
    dave.add("long", "--set max_steps=1000000000")
    machine.run("systemctl", "start", agent)
    wait_for("the run to train", lambda: dave.stage("long") == "training")
    pid = json.loads(dave.type("trainerd status runs/long --json"))["pid"]
    assert machine.output("ps", "-o", "user=", "-p", str(pid)) == "dave"
    machine.run("systemctl", "restart", agent)
    machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", agent)
    wait_for("the next agent", lambda: machine.output("systemctl", "show", "--value", "-p", "NRestarts", agent) == "1")
    dave.type("trainerd queue pause long")
    wait_for("the pause", lambda: dave.stage("long") == "paused")
    assert json.loads(dave.type("trainerd status runs/long --json"))["pid"] == pid
    assert "(the agent: by `trainerd queue pause`)" in dave.type("trainerd events runs/long")
    machine.run("systemctl", "stop", agent)


def test_a_run_that_has_a_unit_is_started_as_that(machine: Machine) -> None:
    carol = User.make(machine, "carol")
    home = "/home/carol"
    machine.write(f"{home}/.config/trainerd/job.py", JOB)
    config = f'entry = "job:make"\nname = "unit"\nlogdir = "{home}/unit"\n'
    machine.write(f"{home}/.config/trainerd/unit.toml", config)
    machine.run("chown", "-R", "carol:", home)
    carol.type("trainerd install --user --name unit")
    carol.install_agent(1)
    carol.type("trainerd queue add --config ~/.config/trainerd/unit.toml")
    wait_for(
        "the unit to train", lambda: carol.type("systemctl --user is-active trainerd@unit", check=False) == "active"
    )
    wait_for("the agent to see that", lambda: carol.stage("unit") == "training")
    carol.type("trainerd queue pause unit")
    wait_for("the pause", lambda: carol.stage("unit") == "paused")
    assert carol.type("systemctl --user is-active trainerd@unit", check=False) == "inactive"
    assert "(the agent: by `trainerd queue pause`)" in carol.type("trainerd events unit")
    carol.type("systemctl --user disable --now trainerd-agent")
