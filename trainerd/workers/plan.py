"""The plan of a cluster: its workers, and the rank of this process. Pure: a config and an environment go in."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainerd.config.schema import ClusterConfig
from trainerd.errors import ConfigError, UsageError
from trainerd.workers import slurm

RANK, WORKERS = "TRAINERD_RANK", "TRAINERD_WORKERS"  # what overrules the config, for `trainerd cluster run`
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True)
class WorkerAddress:
    """The address at which a worker listens.

    Attributes:
      host: a name or an IP address; an IPv6 address without brackets.
      port: TensorFlow's. The chief listens at the port after it too.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> WorkerAddress:
        """Read "host:port".

        Raises:
          ValueError: the text is not an address.
        """
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found["port"]) < 65535:
            raise ValueError(f'expected "host:port", such as "10.0.0.1:29500", got {text!r}')
        return cls(found["host"].strip("[]"), int(found["port"]))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class ClusterPlan:
    """The workers of one run, and this one's rank.

    Attributes:
      workers: the address of each, by rank. The first is the chief.
      rank: this process's.
    """

    workers: tuple[WorkerAddress, ...]
    rank: int

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.workers)

    @property
    def is_chief(self) -> bool:
        """True if this is the worker of rank 0."""
        return self.rank == 0

    @property
    def meeting_place(self) -> WorkerAddress:
        """The address at which the chief listens for the other workers."""
        return WorkerAddress(self.workers[0].host, self.workers[0].port + 1)

    @property
    def local_rank(self) -> int:
        """The number of workers of a lower rank on the same host."""
        return sum(each.host == self.workers[self.rank].host for each in self.workers[: self.rank])

    @property
    def local_size(self) -> int:
        """The number of workers on the same host."""
        return sum(each.host == self.workers[self.rank].host for each in self.workers)


def make_plan(
    config: ClusterConfig,
    environment: Mapping[str, str],
    rank: int | None = None,
    show_hosts: Callable[[str], Sequence[tuple[str, str]]] = slurm.show_hosts,
) -> ClusterPlan | None:
    """Find the workers of a run; None for a run on one machine.

    Args:
      config: says where the workers are named.
      environment: of this process.
      rank: what the command line says.
      show_hosts: expands Slurm's list of nodes to (name, address).

    Raises:
      ConfigError: the workers cannot be had, or contradict each other.
      UsageError: the rank is missing, or is none of them.
    """
    own = environment.get(RANK)
    if given := environment.get(WORKERS):
        workers = given.split(",")
    elif config.workers == "tf_config":
        workers, own = _of_tf_config(environment.get("TF_CONFIG", ""))
    elif config.workers == "slurm":
        workers, own = slurm.workers_of(environment, config.port, show_hosts)
    else:
        workers = list(config.workers)
    if not workers:
        if rank is not None:
            raise UsageError("--rank is for a run on several machines, and the config has no [cluster] with `workers`.")
        return None
    return _checked(workers, own if rank is None else str(rank))


def _checked(workers: Sequence[str], rank: str | None) -> ClusterPlan:
    try:
        addresses = tuple(map(WorkerAddress.parse, workers))
    except ValueError as error:
        raise ConfigError(f"cluster.workers: {error}") from None
    if len({*addresses}) < len(addresses):
        twice = next(each for each in addresses if addresses.count(each) > 1)
        raise ConfigError(f"cluster.workers: {twice} is listed twice. Each worker needs its own address.")
    if len(addresses) > 1 and WorkerAddress(addresses[0].host, addresses[0].port + 1) in addresses:
        raise ConfigError(
            f"cluster.workers: the chief listens at port {addresses[0].port + 1} too, the one after its own. Give the "
            "other worker on its host another port."
        )
    known = f"0 to {len(addresses) - 1}"
    if rank is None:
        raise UsageError(f"the rank of this worker is missing. Give --rank, {known}; or set {RANK}.")
    if not rank.isdigit() or int(rank) >= len(addresses):
        raise UsageError(f"rank {rank}: the config names {len(addresses)} workers, so ranks are {known}.")
    return ClusterPlan(addresses, int(rank))


def _of_tf_config(text: str) -> tuple[list[str], str]:
    """Return the workers in TF_CONFIG, the chief first, and this task's rank among them."""
    try:
        found: Any = json.loads(text)
        cluster, task = found["cluster"], found["task"]
        chiefs, others = list(cluster.get("chief", [])), list(cluster.get("worker", []))
        kind, index = task["type"], int(task["index"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ConfigError(
            'cluster.workers = "tf_config": TF_CONFIG must be JSON such as {"cluster": {"worker": ["10.0.0.1:29500", '
            f'"10.0.0.2:29500"]}}, "task": {{"type": "worker", "index": 0}}}}, and is {text!r}.'
        ) from None
    if kind not in ("chief", "worker"):
        raise ConfigError(f'cluster.workers = "tf_config": TF_CONFIG says that this is a {kind!r}, and no worker.')
    return [*chiefs, *others], str(index + (len(chiefs) if kind == "worker" else 0))


def free_ports(count: int) -> list[int]:
    """Return ports of this machine, one for each of so many workers: nobody listens at it, or at the one after it."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            second = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                found.append(port)
    return found
