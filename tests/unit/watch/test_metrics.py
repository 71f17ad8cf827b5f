"""What Prometheus scrapes, by the strict parser of the format."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed

from tests.unit.watch.conftest import HOSTILE, MakeRun, hostile
from trainerd.copies.status import CopyStatus
from trainerd.rundir import lock, run_events
from trainerd.rundir.goodput import Goodput, Spent
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import LastCheckpoint, Phase
from trainerd.system.gpus import DeviceState
from trainerd.watch.metrics import registry
from trainerd.watch.run_reader import Runs, RunView

Samples = dict[tuple[str, str], float]


def scraped(runs: Runs | Sequence[RunView], now: float = 1000.0, stages: Mapping[str, int] | None = None) -> Samples:
    """What a scrape gives: each sample by its name and its labels, of which none is there twice."""
    look = runs.read if isinstance(runs, Runs) else lambda: runs
    text = generate_latest(registry(look, lambda: stages or {}, lambda: now)).decode()  # type: ignore[no-untyped-call]
    found: Samples = {}
    for family in parsed(text):  # type: ignore[no-untyped-call]
        assert family.documentation and family.name.startswith("trainerd")
        for sample in family.samples:
            labels = " ".join(value for _, value in sorted(sample.labels.items()))
            assert (sample.name, labels) not in found
            found[sample.name, labels] = sample.value
    return found


def test_a_run_that_trains(trained: RunDirectory, runs: Runs) -> None:
    run_events.add(trained, run_events.EventKind.START)
    found = scraped(runs)
    wanted = {
        ("trainerd_runs", ""): 1,
        ("trainerd_running", "trained"): 1,
        ("trainerd_step", "trained"): 7,
        ("trainerd_max_steps", "trained"): 10,
        ("trainerd_steps_per_second", "trained"): 2,
        ("trainerd_metric", "loss trained"): 0.5,
        ("trainerd_phase", "trained training"): 1,
        ("trainerd_phase", "trained paused"): 0,
        ("trainerd_events_total", "start trained"): 1,
        ("trainerd_events_total", "killed trained"): 0,
        ("trainerd_unreadable", "trained"): 0,
    }
    assert {key: found.get(key) for key in wanted} == wanted
    assert 0 < found["trainerd_disk_free_bytes", "trained"] <= found["trainerd_disk_size_bytes", "trained"]
    assert not [name for name, _ in found if name.startswith("trainerd_checkpoint")], "there is none"


def test_the_devices_of_a_run_that_trains(make_run: MakeRun, runs: Runs) -> None:
    devices = [DeviceState("GPU:0", 3, 4, 0.5), DeviceState("GPU:1", 1, 4), DeviceState("CPU:0")]
    make_run("ended", devices=devices)
    rundir = make_run("trained", Phase.TRAINING, devices=devices)
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        found = {key: value for key, value in scraped(runs).items() if key[0].startswith("trainerd_device")}
    assert found == {
        ("trainerd_device_memory_bytes", "GPU:0 trained"): 3,
        ("trainerd_device_memory_bytes", "GPU:1 trained"): 1,
        ("trainerd_device_memory_total_bytes", "GPU:0 trained"): 4,
        ("trainerd_device_memory_total_bytes", "GPU:1 trained"): 4,
        ("trainerd_device_utilization_ratio", "GPU:0 trained"): 0.5,
    }


def test_a_run_that_was_killed_and_its_checkpoint(make_run: MakeRun, runs: Runs) -> None:
    last = LastCheckpoint(5, "/x/model.ckpt-5", "schedule", None, 2048, 940.0)
    goodput = Goodput({Spent.TRAINING: 30.0, Spent.DOWN: 5.0}, steps_again=4)
    make_run(phase=Phase.SAVING, steps_per_sec=9.0, last_checkpoint=last, goodput=goodput, metrics={"loss": math.nan})
    found = scraped(runs)
    assert found["trainerd_phase", "one killed"] == 1 and found["trainerd_running", "one"] == 0
    assert ("trainerd_steps_per_second", "one") not in found
    assert found["trainerd_checkpoint_age_seconds", "one"] == 60
    assert found["trainerd_checkpoint_size_bytes", "one"] == 2048
    assert ("trainerd_checkpoint_save_seconds", "one") not in found
    assert found["trainerd_spent_seconds_total", "training one"] == 30
    assert found["trainerd_spent_seconds_total", "paused one"] == 0
    assert math.isnan(found["trainerd_metric", "loss one"])


def test_the_copy_of_a_run(make_run: MakeRun, runs: Runs) -> None:
    rundir = make_run("one", step=9)
    CopyStatus(to="s3://b/one", step=7, copied={5: 50.0, 7: 70.0}, error="403").write(rundir)
    found = scraped(runs)
    assert found["trainerd_copied_step", "one"] == 7 and found["trainerd_copied_timestamp_seconds", "one"] == 70
    assert found["trainerd_copy_failing", "one"] == 1


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_state_spoils_no_scrape(make_run: MakeRun, runs: Runs, kind: str) -> None:
    make_run("sound", step=3)
    make_run("bad").state.write_bytes(hostile(kind))
    found = scraped(runs)
    assert found["trainerd_step", "sound"] == 3 and found["trainerd_runs", ""] == 2
    assert len(found) < 300 and not [key for key in found if not "".join(key).isprintable()]


def test_names_that_are_shown_alike_are_one_series(make_run: MakeRun) -> None:
    seen = [
        RunView(make_run(f"{number}"), None, False, name=name)
        for number, name in enumerate(["a b", "a\nb", '"\\', "x" * 500])
    ]
    found = scraped(seen)
    assert [labels for name, labels in found if name == "trainerd_running"] == ["a b", '"\\', "x" * 200]


def test_metrics_whose_names_are_shown_alike_are_one_series(make_run: MakeRun, runs: Runs, tmp_path: Path) -> None:
    rundir = make_run()
    state = json.loads(rundir.state.read_text())
    rundir.state.write_text(json.dumps(state | {"metrics": {"a b": 1.0, "a  b": 2.0}}))
    assert scraped(runs)["trainerd_metric", "a b one"] == 2.0


def test_the_entries_of_the_queue_are_counted_by_stage() -> None:
    found = scraped([], stages={"waiting": 3, "training": 0})
    assert found["trainerd_queue_entries", "waiting"] == 3 and found["trainerd_queue_entries", "training"] == 0
