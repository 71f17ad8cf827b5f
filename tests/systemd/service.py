"""One trainerd service on the machine, worked as a person works it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.systemd.machine import TRAINERD, Machine, wait_for
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state

COUNTER = "trainerd.examples.counter:job"


class Service:
    """`trainerd`, or `trainerd@NAME`.

    Args:
      machine: where.
      name: the instance; None for the one that is no instance.
    """

    def __init__(self, machine: Machine, name: str | None = None) -> None:
        self.machine = machine
        self.name = name
        self.unit = f"trainerd@{name}" if name else "trainerd"
        self.folder = f"/var/lib/trainerd-{name}" if name else "/var/lib/trainerd"
        self.config = f"/etc/trainerd/{name or 'trainerd'}.toml"

    # ------------------------------------------------------------------ before it runs

    def configure(self, entry: str = COUNTER, more: str = "") -> None:
        """Write its config."""
        self.machine.write(self.config, f'entry = "{entry}"\nlogdir = "{self.folder}"\n{more}')

    def install(self) -> str:
        """Type `trainerd install`. What it says."""
        name = ["--name", self.name] if self.name else []
        return self.machine.output(TRAINERD, "install", "--system", *name)

    def adjust(self, **settings: str) -> None:
        """What `systemctl edit` does."""
        lines = "\n".join(f"{name}={value}" for name, value in settings.items())
        self.machine.write(f"/etc/systemd/system/{self.unit}.service.d/override.conf", f"[Service]\n{lines}\n")
        self.machine.run("systemctl", "daemon-reload")

    # ------------------------------------------------------------------ what a person types

    def systemctl(self, verb: str, *more: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Type `systemctl VERB` for it."""
        return self.machine.run("systemctl", verb, *more, self.unit, check=check)

    def remove(self) -> None:
        """End it however it is, and forget it."""
        self.systemctl("kill", "--signal=KILL", check=False)
        self.systemctl("disable", "--now", check=False)
        self.systemctl("reset-failed", check=False)

    def show(self, name: str) -> str:
        """One property, as `systemctl show` gives it."""
        return self.systemctl("show", "--value", f"--property={name}").stdout.strip()

    def journal(self, *matches: str) -> list[dict[str, Any]]:
        """The lines of its journal since the boot that match, oldest first, with all their fields."""
        self.machine.run("journalctl", "--sync")
        text = self.machine.output("journalctl", "-u", self.unit, "-b", "-o", "json", "--all", *matches)
        return [json.loads(line) for line in text.splitlines()]

    # ------------------------------------------------------------------ what is there to see

    @property
    def pid(self) -> int:
        """The trainer's pid on the machine."""
        return int(self.show("MainPID"))

    @property
    def rundir(self) -> RunDirectory:
        """Its run directory, seen from here."""
        return RunDirectory(self.machine.path(self.folder.replace("/lib/", "/lib/private/", 1)))

    @property
    def state(self) -> State:
        """What it says of itself."""
        state = read_state(self.rundir.state)
        assert state is not None, f"no state.json in {self.rundir.path}"
        return state

    @property
    def saved_steps(self) -> list[int]:
        """The steps that it can go back to, oldest first."""
        return sorted(self.rundir.steps())

    def first_steps(self) -> list[int]:
        """The first step of each start since the boot, oldest first."""
        lines = self.journal("EVENT=training")
        return [int(re.search(r"first step was (\d+)", line["MESSAGE"])[1]) for line in lines]  # type: ignore[index]

    def checkpoints(self, reason: str = "") -> list[int]:
        """The steps of the checkpoints that were announced since the boot, oldest first."""
        lines = self.journal("EVENT=checkpoint", *([f"REASON={reason}"] if reason else []))
        return [int(line["STEP"]) for line in lines if line["MESSAGE"].startswith("saved step")]

    def tell(self, word: str) -> None:
        """Put a file into the run directory that a job of these tests looks for."""
        (self.rundir.path / word).touch()

    # ------------------------------------------------------------------ waiting

    def wait_until_training(self, *, restarts: int | None = None, seconds: float = 90.0) -> None:
        """Wait until it trains, after so many automatic restarts."""

        def trains() -> bool:
            if self.show("ActiveState") != "active" or (restarts and int(self.show("NRestarts")) != restarts):
                return False
            return self.state.phase is Phase.TRAINING and self.state.pid == self.pid

        wait_for(f"{self.unit} to train", trains, seconds=seconds)

    def wait_for_progress(self) -> None:
        """Wait until it has done more steps than now."""
        step = self.state.step
        wait_for(f"{self.unit} to pass step {step}", lambda: self.state.step > step, seconds=30)

    def wait_until_over(self, seconds: float = 60.0) -> str:
        """Wait until it runs no more. The state that systemd has it in."""

        def state() -> str | None:
            now = self.show("ActiveState")
            return now if now in ("inactive", "failed") else None

        return wait_for(f"{self.unit} to end", state, seconds=seconds)


def job_file() -> str:
    """The text of the jobs that misbehave."""
    return Path(__file__).with_name("jobs.py").read_text(encoding="utf-8")
