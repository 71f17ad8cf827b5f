"""The devices that a worker of a cluster takes, on machines with and without GPUs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from trainerd.errors import EntryError
from trainerd.job.devices import Devices
from trainerd.workers.engine.engine import devices_of
from trainerd.workers.plan import ClusterPlan, WorkerAddress

Machine = Callable[[int], list[str]]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Let this machine have so many GPUs. Returns the list of those that are made visible."""

    def has(count: int) -> list[str]:
        visible: list[str] = []
        found = [SimpleNamespace(name=f"GPU:{number}") for number in range(count)]

        def choose(chosen: list[Any], kind: str) -> None:
            assert kind == "GPU"
            visible.extend(each.name for each in chosen)

        monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: found)
        monkeypatch.setattr(tf.config, "set_visible_devices", choose)
        return visible

    return has


def plan(rank: int, hosts: str) -> ClusterPlan:
    """Return the plan of workers on these hosts, a letter each."""
    return ClusterPlan(tuple(WorkerAddress(host, 2000 + 2 * n) for n, host in enumerate(hosts)), rank)


@pytest.mark.parametrize(
    ("wanted", "rank", "hosts", "physical"),
    [
        (None, 0, "ab", [0]),
        (None, 1, "aa", [1]),
        (2, 0, "ab", [0, 1]),
        (2, 1, "aab", [2, 3]),
        ("all", 0, "ab", [0, 1, 2, 3]),
        ("all", 2, "aaa", [2]),
        (("GPU:1", "GPU:3"), 1, "ab", [1, 3]),
    ],
)
def test_workers_share_out_the_gpus_of_their_machine(
    gpus: Machine, wanted: Devices | None, rank: int, hosts: str, physical: list[int]
) -> None:
    visible = gpus(4)
    assert len(devices_of(wanted, plan(rank, hosts))) == len(physical)
    assert visible == [f"GPU:{number}" for number in physical]


@pytest.mark.parametrize(
    ("wanted", "hosts", "reason"),
    [
        (3, "aa", "devices = 3: 2 workers on this machine share 4 GPUs"),
        (None, "aaaaa", "devices = 1: 5 workers on this machine share 4 GPUs"),
        (("GPU:0",), "aa", "2 workers on this machine share 4 GPUs, and no two can use the same one"),
        ("all", "aaaaa", "5 workers on this machine share 4 GPUs"),
        (("GPU:4",), "a", "'GPU:4' does not exist"),
    ],
)
def test_too_many_devices_are_refused(gpus: Machine, wanted: Devices, hosts: str, reason: str) -> None:
    gpus(4)
    with pytest.raises(EntryError, match=reason):
        devices_of(wanted, plan(0, hosts))


def test_a_machine_without_gpus_has_its_cpus(gpus: Machine) -> None:
    gpus(0)
    assert devices_of(None, plan(0, "ab")) == devices_of("all", plan(0, "ab")) == ["CPU:0"]
    with pytest.raises(EntryError, match="devices = 2, and this process can use 1: CPU:0"):
        devices_of(2, plan(0, "ab"))
