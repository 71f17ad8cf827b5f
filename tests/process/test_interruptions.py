"""A machine that a cloud takes away: the watcher learns of it, and real trainers pause with their last step on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.metadata_server import MetadataServer
from tests.process.conftest import Start, write_config
from tests.process.test_watch import endpoint, state_home
from tests.process.trainers import Trainer, saved
from tests.process.watchers import Endpoint, Watcher, write_settings
from tests.waiting import wait_for
from trainerd.rundir import registry
from trainerd.rundir.state import Phase

__all__ = ["endpoint", "state_home"]

PREEMPT = {"EventId": "1", "EventType": "Preempt", "Resources": ["vm-1"], "NotBefore": ""}


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    found = MetadataServer()
    yield found
    found.close()


@pytest.fixture
def watch(
    tmp_path: Path, state_home: Path, server: MetadataServer, endpoint: Endpoint
) -> Iterator[Callable[..., Watcher]]:
    """Watch runs on a machine of a cloud."""
    watchers: list[Watcher] = []

    def go(cloud: str, *runs: Trainer) -> Watcher:
        for run in runs:
            registry.remember(run.rundir)
        interruptions = f'[interruptions]\ncloud = "{cloud}"\nmetadata_url = "{server.url}"\nsleep = "off"\n'
        page = f'listen = ""\n{interruptions}shutdown = "off"\n'
        settings = write_settings(tmp_path / "watch.toml", f"json://{endpoint.address}", page=page)
        watchers.append(Watcher(settings, tmp_path / "watch.log", state_home))
        wait_for(lambda: len(server.asked) >= 2, lambda: f"its first requests: {watchers[-1].text}")
        return watchers[-1]

    yield go
    for watcher in watchers:
        watcher.kill()


def test_a_run_is_paused_with_its_last_step_when_aws_takes_the_machine(
    start: Start, project: Path, watch: Callable[..., Watcher], server: MetadataServer, endpoint: Endpoint
) -> None:
    write_config(project, entry="jobs:exact", more="[checkpoint]\nsave_model_secs = 3600\n")
    run = start("run", "--forever")
    run.until_training(10)
    watcher = watch("aws", run)
    server.interrupt()
    assert run.end() == 0, run.text
    assert run.state.phase is Phase.PAUSED and saved(run.rundir)[0] == run.state.step >= 10
    [title] = wait_for(lambda: [each for each in endpoint.titles if "AWS" in each] or None, "the notice")
    assert ": AWS will terminate the machine at " in title and title.endswith("1 of 1 run paused")
    assert f"run: paused at step {run.state.step:,}" in watcher.text
    again = start("run", "--forever")  # the same announcement asks nobody twice
    again.until_training(run.state.step + 1)
    asked = len(server.asked)
    wait_for(lambda: len(server.asked) > asked, "one more look")
    assert again.state.phase is Phase.TRAINING
    assert watcher.end() == 0


@pytest.mark.long
def test_a_run_is_paused_in_an_evaluation_when_google_takes_the_machine(
    start: Start, project: Path, watch: Callable[..., Watcher], server: MetadataServer
) -> None:
    write_config(project, entry="jobs:evaluated", more="[evaluate]\nevaluate_secs = 0\nevaluate_steps = 20\n")
    (project / "long").touch()
    run = start("run", "--forever")
    run.until(lambda state: state.phase is Phase.EVALUATING, "an evaluation")
    watch("gcp", run)
    server.preempt()
    assert run.end() == 0, run.text
    assert run.state.phase is Phase.PAUSED and saved(run.rundir)[0] == run.state.step


@pytest.mark.long
def test_a_run_is_paused_in_a_save_when_azure_takes_the_machine(
    start: Start, project: Path, watch: Callable[..., Watcher], server: MetadataServer
) -> None:
    write_config(project, entry="jobs:slow_save")
    run = start("run")
    run.until_training()
    (project / "slow-save").touch()
    (run.rundir.path / "save").touch()
    wait_for((project / "save-go.waiting").exists, "the save")
    watcher = watch("azure", run)
    server.schedule(PREEMPT)
    wait_for(lambda: "asking all runs to pause" in watcher.text, lambda: watcher.text)
    (project / "save-go").touch()
    assert run.end() == 0, run.text
    assert saved(run.rundir)[0] == run.state.step
    wait_for(lambda: "run: paused at step" in watcher.text, lambda: watcher.text)


@pytest.mark.long
def test_a_run_is_paused_in_its_first_compilation(
    start: Start, project: Path, watch: Callable[..., Watcher], server: MetadataServer
) -> None:
    write_config(project, entry="jobs:slow_compile")
    run = start("run")
    wait_for((project / "go.waiting").exists, "the tracing")
    watcher = watch("aws", run)
    server.interrupt()
    wait_for(run.rundir.pause.exists, "the request")
    (project / "go").touch()
    assert run.end() == 0, run.text
    assert run.state.phase is Phase.PAUSED
    wait_for(lambda: "run: paused at step 0" in watcher.text, lambda: watcher.text)
