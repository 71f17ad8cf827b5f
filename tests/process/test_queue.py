"""The queue with real daemons: the agent starts and pauses them, and is killed itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Fork
from tests.process.services import Service
from tests.process.trainers import saved, variables
from tests.waiting import wait_for
from trainerd.rundir.lock import read_holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State, read_state

STEPS = 1000


class Subject:
    """A user with a queue, and configs in the folder of a project.

    Args:
      fork: starts commands.
      project: the folder, with the jobs of these tests.
    """

    def __init__(self, fork: Fork, project: Path) -> None:
        self._fork, self._project = fork, project
        self.state = project / "state-home"
        self.agents: list[Service] = []

    def command(self, *arguments: str, code: int = 0) -> str:
        """Run a `trainerd` command to its end; what it printed."""
        trainer = self._fork(self._project, run=arguments, env={"XDG_STATE_HOME": str(self.state)})
        assert trainer.end() == code, trainer.text
        return trainer.text

    def agent(self, slots: int = 1) -> Service:
        """Start an agent."""
        config = self._project / "agent.toml"
        config.write_text(f"slots = {slots}\ngpus = []\n")
        output = self._project / f"agent-{len(self.agents)}"
        self.agents.append(Service(["agent", "--config", str(config)], output, self.state))
        return self.agents[-1]

    def config(self, name: str) -> str:
        """Write a config; its name."""
        (self._project / f"{name}.toml").write_text(
            f'entry = "jobs:paced"\nlogdir = "runs/{name}"\nmax_steps = {STEPS}\n'
        )
        return f"{name}.toml"

    def rundir(self, name: str) -> RunDirectory:
        """The run directory of a config."""
        return RunDirectory(self._project / "runs" / name)

    def entry(self, name: str) -> dict[str, Any] | None:
        """What the queue says of an entry; None if it has no such entry."""
        return next((each for each in json.loads(self.command("queue", "--json")) if each["name"] == name), None)

    def until(self, name: str, stage: str, why: str = "") -> None:
        """Wait until an entry is at a stage, and says why."""

        def look() -> bool:
            found = self.entry(name)
            return found is not None and found["stage"] == stage and why in found["why"]

        wait_for(look, lambda: f"{name} {stage}: {self.entry(name)}; {[each.text for each in self.agents]}")

    def until_training(self, name: str, beyond: int = 0) -> State:
        """Wait until a run has trained beyond a step."""

        def look() -> State | None:
            state = read_state(self.rundir(name).state)
            return state if state is not None and state.phase is Phase.TRAINING and state.step > beyond else None

        return wait_for(look, lambda: f"{name} training: {[each.text for each in self.agents]}")

    def require_as_if_alone(self, *names: str) -> None:
        """Wait until these entries are done, and require the bytes of a run of the same job that nobody interrupts."""
        self.command("run", "-c", f"{names[0]}.toml", "--logdir", "alone")
        alone = last_variables(RunDirectory(self._project / "alone"))
        for name in names:
            self.until(name, "done")
            assert last_variables(self.rundir(name)) == alone


def last_variables(rundir: RunDirectory) -> dict[str, str]:
    """The bytes of the last checkpoint, which ends the run."""
    assert saved(rundir)[0] == STEPS
    return variables(rundir.prefix(STEPS))


@pytest.fixture
def subject(fork: Fork, project: Path) -> Iterator[Subject]:
    """A user; all that is left at the end is killed."""
    (project / "slow").touch()
    found = Subject(fork, project)
    yield found
    for agent in found.agents:
        agent.kill()
    for path in (project / "runs").glob("*"):
        if (holder := read_holder(RunDirectory(path))) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)


def test_a_higher_priority_pauses_a_run_and_gives_its_place_back(subject: Subject, project: Path) -> None:
    """The agent is killed meanwhile. The bytes are those of runs that were never interrupted."""
    agent = subject.agent()
    subject.command("queue", "add", subject.config("low"))
    subject.until_training("low", beyond=5)
    subject.command("queue", "add", subject.config("high"), "--priority", "1")
    subject.until_training("high", beyond=5)
    low = read_state(subject.rundir("low").state)
    assert low is not None and low.phase is Phase.PAUSED
    assert low.ended is not None and "the agent: gives its place to high" in low.ended
    subject.until("low", "waiting", "waits for a slot: high first")
    agent.kill()
    assert "No agent runs" in subject.command("queue")
    high = subject.until_training("high", beyond=subject.until_training("high").step)
    subject.agent()
    wait_for(lambda: "No agent runs" not in subject.command("queue"), "the new agent")
    assert "another agent of yours runs already" in subject.command("agent", code=75)
    (project / "slow").unlink()
    subject.require_as_if_alone("high", "low")
    last = read_state(subject.rundir("high").state)
    assert last is not None and last.pid == high.pid  # it was not started again


def test_a_run_that_is_killed_starts_again_and_one_by_hand_is_followed(subject: Subject, project: Path) -> None:
    agent = subject.agent(slots=2)
    subject.command("queue", "add", subject.config("first"))
    subject.command("queue", "add", subject.config("second"), "--after", "first")
    subject.until("second", "waiting", "waits for first")
    subject.command("start", "-c", "second.toml")
    killed = subject.until_training("first", beyond=5)
    os.kill(killed.pid, signal.SIGKILL)
    subject.until("first", "waiting", "its process was killed")
    subject.command("queue", "resume", "first")
    subject.until("first", "training")
    subject.until("second", "training")
    (project / "slow").unlink()
    subject.require_as_if_alone("first", "second")
    assert agent.end() == 0, agent.text


def test_a_run_by_hand_joins_the_queue_as_it_was_started(subject: Subject, project: Path) -> None:
    subject.agent()
    subject.command("start", "-c", subject.config("mine"), "--set", 'when.days="mon-sun"', "--max-steps", "900")
    subject.until("mine", "training")
    subject.command("queue", "pause", "mine")
    subject.until("mine", "paused")
    (project / "slow").unlink()
    subject.command("queue", "resume", "mine")
    subject.until("mine", "done")
    assert saved(subject.rundir("mine"))[0] == 900
