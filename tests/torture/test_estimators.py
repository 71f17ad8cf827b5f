"""Estimators that are killed at random: they have evaluated and exported the same as one that nothing interrupts."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import Start, write_config
from tests.process.trainers import saved, variables
from tests.torture.conftest import Tell, amount
from tests.waiting import wait_for
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, read_state

pytestmark = pytest.mark.long

MANY = amount(4, 100)
# `make test-long` runs the first two, `make torture` all.
TRIED = [("census", MANY), ("keras_model", 3), ("job", 5), ("schedule", MANY), ("recommender", MANY)][: amount(2, 5)]
BEGUN = {Phase.TRAINING, Phase.EVALUATING, Phase.SAVING}


def outcome(logdir: Path) -> dict[str, Any]:
    """All that a run has come to, without what the clock says."""
    from trainerd.programs.experiment.early_stopping import read_eval_metrics

    rundir = RunDirectory(logdir)
    exports: dict[str, list[Any]] = {}
    for path in sorted(logdir.glob("export/*/*/release.json")):
        about = json.loads(path.read_text())
        digest = about["files"]["variables/variables.data-00000-of-00001"]["xxh128"]
        exports.setdefault(path.parent.parent.name, []).append((about["step"], digest))
    return {
        "variables": variables(rundir.prefix(saved(rundir)[0])),
        "curves": {path.name: read_eval_metrics(str(path)) for path in sorted(logdir.glob("eval*/"))},
        "exports": exports,
        "best": [json.loads(path.read_text()) for path in sorted(logdir.glob("export/*.json"))],
        "summaries": [
            json.loads(path.read_text()) | {"last_at": 0} for path in sorted(logdir.glob("evaluations*.json"))
        ],
    }


@pytest.mark.parametrize(("name", "times"), TRIED)
def test_kills_change_nothing(start: Start, programs: Path, record_property: Tell, name: str, times: int) -> None:
    more = 'schedule = "continuous_train_and_eval"\n' if name == "schedule" else ""
    write_config(programs, entry=f"estimators:{name}", more=more)
    whole = start("run", "--logdir", "whole", rundir=programs / "whole")
    assert whole.end() == 0, whole.text
    rng, broken = random.Random(f"{name} {times}"), programs / "broken"
    cut = 0
    while cut < times:
        run = start("run", "--logdir", "broken", rundir=broken)
        wait_for(lambda run=run: not run.is_alive() or run.state.phase in BEGUN, "its beginning")  # type: ignore[misc]
        time.sleep(rng.choice([rng.uniform(0, 0.1), rng.uniform(0, 0.5)]))
        if run.is_alive():
            run.signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        assert run.end() in (0, -signal.SIGKILL), run.text
        cut += 1
        found = read_state(RunDirectory(broken).state)
        if found is not None and found.phase is Phase.FINISHED:
            break
    last = start("run", "--logdir", "broken", rundir=broken)
    assert last.end() == 0, last.text
    assert cut >= 2
    assert outcome(broken) == outcome(programs / "whole")
    record_property(f"kills and pauses of {name}", cut)
