"""A cloud that takes the machine away at random moments: each run is paused, and nothing that it trained is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.metadata_server import MetadataServer
from tests.process.conftest import Start, write_config
from tests.process.test_interruptions import endpoint, server, state_home, watch
from tests.process.trainers import saved
from tests.process.watchers import Watcher
from tests.torture.conftest import Tell, amount
from tests.torture.test_pauses import EVERY, GRACE_SECS, end_as_a_calm_run, pytestmark
from tests.waiting import wait_for
from trainerd.rundir import registry
from trainerd.rundir.state import Phase

__all__ = ["endpoint", "pytestmark", "server", "state_home", "watch"]


def test_preemptions_of_a_run_that_evaluates_and_saves_often(
    start: Start, project: Path, watch: Callable[..., Watcher], server: MetadataServer, record_property: Tell
) -> None:
    """It ends as a run that nothing interrupts. Announcements come while it restores, compiles, saves and evaluates."""
    count, chance = amount(3, 100), random.Random(11)
    write_config(project, entry="jobs:evaluated_often", more=EVERY)
    found = dict.fromkeys(Phase, 0)
    slowest = 0.0
    watcher: Watcher | None = None
    for _ in range(count):
        run = start("run", "--forever")
        run.until(lambda state: state.pid != 0, "the state")
        registry.remember(run.rundir)
        watcher = watcher or watch("gcp")
        time.sleep(chance.uniform(0.0, 3.0))
        found[run.state.phase] += 1
        server.preempt()
        begun = time.monotonic()
        assert run.end() == 0, run.text
        slowest = max(slowest, time.monotonic() - begun)
        assert run.state.phase is Phase.PAUSED and saved(run.rundir)[:1] in ([run.state.step], [])
        server.preempt(False)
        wait_for(lambda: server.said[-1] == b"FALSE", "the watcher to be told")
    assert slowest < GRACE_SECS
    end = run.state.step + 1000
    end_as_a_calm_run(start, project, end)
    shown = ", ".join(f"{times} {phase}" for phase, times in found.items() if times)
    record_property("preemptions", f"{count} ({shown}); the slowest pause took {slowest:.1f} s")
