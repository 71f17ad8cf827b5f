"""A sweep with successive halving, trained by the commands that `trainerd sweep next` prints."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tests.process.conftest import Start, write_config
from tests.process.trainers import saved, variables
from trainerd.rundir.paths import RunDirectory

SWEEP = ["--set", "params.by=3.0,1.0,2.0", "--halve", "p", "--rungs", "20,60", "--factor", "2", "--name", "lr"]


def test_a_halved_sweep_finds_the_winner_and_its_run_is_the_one_that_is_trained_alone(
    start: Start, project: Path
) -> None:
    write_config(project, entry="jobs:reader")
    assert start("sweep", "trainerd.toml", *SWEEP).end() == 0
    rounds = []
    for _ in range(3):
        following = start("sweep", "next", "sweeps/lr")
        assert following.end() == 0
        commands = [shlex.split(line) for line in following.text.splitlines() if " run " in line]
        for words in commands:
            assert start(*words[words.index("run") :]).end() == 0
        rounds.append([words[words.index("--config") + 1 :] for words in commands])
    point = "sweeps/lr/002.toml"
    assert [len(each) for each in rounds] == [3, 1, 0] and rounds[1] == [[point, "--max-steps", "60"]]
    shown = start("sweep", "show", "sweeps/lr", "--json")
    assert shown.end() == 0
    found = json.loads(shown.text)
    assert [each["state"] for each in found["points"]] == ["out at 20", "the best", "out at 20"]
    halved, alone = RunDirectory(project / "sweeps" / "lr" / "002"), RunDirectory(project / "alone")
    assert start("run", "--config", point, "--max-steps", "60", "--logdir", "alone").end() == 0
    assert saved(halved) == [60, 20] and variables(halved.prefix(60)) == variables(alone.prefix(60))
    for more in ([], ["--logdir", "alone"]):  # the position, by the batches that follow
        assert start("run", "--config", point, "--max-steps", "100", *more).end() == 0
    assert variables(halved.prefix(100)) == variables(alone.prefix(100))
