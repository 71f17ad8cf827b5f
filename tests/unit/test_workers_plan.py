"""Which workers there are: of a config, of TF_CONFIG, of Slurm. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trainerd.config import parse as configs
from trainerd.config.schema import ClusterConfig
from trainerd.errors import ConfigError, UsageError
from trainerd.workers import slurm
from trainerd.workers.plan import WorkerAddress, make_plan

TWO = ClusterConfig(workers=("a:1000", "b:1000"))
TF_CONFIG = {"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]}, "task": {"type": "worker", "index": 1}}
STEP = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2,1", "SLURM_PROCID": "2"}


def hosts(nodes: str) -> Sequence[tuple[str, str]]:
    assert nodes == "n[1-2]"
    return [("n1", "10.0.0.1"), ("n2", "10.0.0.2")]


def test_the_config_names_them_and_the_command_line_says_which_this_is() -> None:
    plan = make_plan(TWO, {}, rank=1)
    assert plan is not None and (plan.size, plan.rank, plan.is_chief) == (2, 1, False)
    assert str(plan.meeting_place) == "a:1001"
    chief = make_plan(TWO, {"TRAINERD_RANK": "0"})
    assert chief is not None and chief.is_chief
    assert make_plan(TWO, {"TRAINERD_RANK": "0"}, rank=1) == plan
    assert make_plan(ClusterConfig(), {}) is None


def test_the_environment_overrules_the_config() -> None:
    plan = make_plan(TWO, {"TRAINERD_WORKERS": "x:1,y:3,z:5", "TRAINERD_RANK": "2"})
    assert plan is not None and [str(each) for each in plan.workers] == ["x:1", "y:3", "z:5"] and plan.rank == 2


def test_tf_config_has_its_chief_first() -> None:
    config = ClusterConfig(workers="tf_config")
    plan = make_plan(config, {"TF_CONFIG": json.dumps(TF_CONFIG)})
    assert plan is not None and [str(each) for each in plan.workers] == ["a:1", "b:2", "c:3"] and plan.rank == 2
    alone: dict[str, Any] = {"cluster": {"worker": ["b:2", "c:3"]}, "task": {"type": "worker", "index": 0}}
    first = make_plan(config, {"TF_CONFIG": json.dumps(alone)})
    assert first is not None and first.is_chief


def test_a_task_of_slurm_has_a_port_of_its_own() -> None:
    plan = make_plan(ClusterConfig(workers="slurm", port=2000), STEP, show_hosts=hosts)
    assert plan is not None and plan.rank == 2
    assert [str(each) for each in plan.workers] == ["10.0.0.1:2000", "10.0.0.1:2002", "10.0.0.2:2003"]
    assert [plan.local_rank, make_plan(TWO, {}, rank=1).local_rank] == [0, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize(("text", "counts"), [("1", [1]), ("2(x3),1", [2, 2, 2, 1]), ("1(x2)", [1, 1])])
def test_tasks_per_node(text: str, counts: list[int]) -> None:
    assert slurm.tasks_per_node(text) == counts


@pytest.mark.parametrize("text", ["[::1]:29500", "host.example:1", "10.0.0.1:65534"])
def test_an_address_reads_as_it_is_written(text: str) -> None:
    assert str(WorkerAddress.parse(text)) == text


@pytest.mark.parametrize(
    ("config", "environment", "rank", "kind", "said"),
    [
        (TWO, {}, None, UsageError, "the rank of this worker is missing. Give --rank, 0 to 1"),
        (TWO, {}, 2, UsageError, "names 2 workers, so ranks are 0 to 1"),
        (TWO, {"TRAINERD_RANK": "one"}, None, UsageError, "rank one"),
        (ClusterConfig(), {}, 0, UsageError, "--rank is for a run on several machines"),
        (ClusterConfig(workers=("a",)), {}, 0, ConfigError, 'expected "host:port"'),
        (ClusterConfig(workers=("a:0", "b:1")), {}, 0, ConfigError, 'expected "host:port"'),
        (
            ClusterConfig(workers=("a:1", "a:1")),
            {},
            0,
            ConfigError,
            "twice. Each worker needs its own address",
        ),
        (ClusterConfig(workers=("a:1", "a:2")), {}, 0, ConfigError, "the chief listens at port 2 too"),
        (ClusterConfig(workers="tf_config"), {}, None, ConfigError, "TF_CONFIG must be JSON"),
        (ClusterConfig(workers="tf_config"), {"TF_CONFIG": "{"}, None, ConfigError, "TF_CONFIG must be JSON"),
        (
            ClusterConfig(workers="tf_config"),
            {"TF_CONFIG": json.dumps(TF_CONFIG | {"task": {"type": "ps", "index": 0}})},
            None,
            ConfigError,
            "TF_CONFIG says that this is a 'ps', and no worker",
        ),
        (ClusterConfig(workers="slurm"), {}, None, ConfigError, "SLURM_STEP_NODELIST is not set"),
        (
            ClusterConfig(workers="slurm"),
            STEP | {"SLURM_STEP_TASKS_PER_NODE": "1"},
            None,
            ConfigError,
            "names 2 nodes, and SLURM_STEP_TASKS_PER_NODE has 1 counts",
        ),
        (ClusterConfig(workers="slurm"), STEP | {"SLURM_STEP_TASKS_PER_NODE": "x"}, None, ConfigError, "such as"),
    ],
)
def test_what_is_wrong_is_reported(
    config: ClusterConfig, environment: dict[str, str], rank: int | None, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=re.escape(said)):
        make_plan(config, environment, rank, show_hosts=hosts)


def test_slurm_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="scontrol show hostnames"):
        make_plan(ClusterConfig(workers="slurm"), STEP)


@pytest.mark.parametrize("value", ["1", '"slurmm"', "[1]", '"slurm", "x"', "[]", '"tf_config"'])
def test_the_key_takes_a_list_or_a_source(value: str, tmp_path: Path) -> None:
    path = tmp_path / "trainerd.toml"
    path.write_text(f'entry = "a:b"\nlogdir = "c"\n[cluster]\nworkers = {value}\n')
    if value in ("[]", '"tf_config"'):
        assert configs.load(path).cluster.workers in ((), "tf_config")
    else:
        with pytest.raises(ConfigError):
            configs.load(path)
