"""The workers of a Slurm step: one for each of its tasks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence

from trainerd.errors import ConfigError

_NODES, _TASKS, _RANK = "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_PROCID"
_COUNT = re.compile(r"(?P<tasks>[0-9]+)(?:\(x(?P<nodes>[0-9]+)\))?")
_SECS = 30.0  # how long scontrol may take


def workers_of(
    environment: Mapping[str, str], port: int, show_hosts: Callable[[str], Sequence[tuple[str, str]]]
) -> tuple[list[str], str]:
    """Return the addresses of a step's tasks, by rank, and this task's rank.

    The chief has `port`, and the task of rank r has `port + r + 1`: two tasks on one host need two ports, and the one
    after the chief's is the chief's too.

    Raises:
      ConfigError: this is not a task of a Slurm step, or Slurm does not say where its nodes are.
    """
    missing = [name for name in (_NODES, _TASKS, _RANK) if not environment.get(name)]
    if missing:
        raise ConfigError(
            f'cluster.workers = "slurm": {missing[0]} is not set, so this is not a task of Slurm. Start it with '
            "`srun trainerd run`; `trainerd install --slurm` writes a script that does."
        )
    hosts = show_hosts(environment[_NODES])
    counts = tasks_per_node(environment[_TASKS])
    if len(counts) != len(hosts):
        raise ConfigError(
            f'cluster.workers = "slurm": {_NODES} names {len(hosts)} nodes, and {_TASKS} has {len(counts)} counts.'
        )
    places = [address for (_, address), count in zip(hosts, counts, strict=True) for _ in range(count)]
    return [f"{place}:{port + rank + (rank > 0)}" for rank, place in enumerate(places)], environment[_RANK]


def tasks_per_node(text: str) -> list[int]:
    """Parse Slurm's "2(x3),1" as [2, 2, 2, 1].

    Raises:
      ConfigError: the text is not such a list.
    """
    found = [_COUNT.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise ConfigError(f'cluster.workers = "slurm": {_TASKS} is {text!r}; expected a list such as "2(x3),1".')
    return [int(each["tasks"]) for each in found if each for _ in range(int(each["nodes"] or 1))]


def show_hosts(nodes: str) -> list[tuple[str, str]]:
    """Ask Slurm for the name and the address of each node in a list such as "n[1-3]".

    Raises:
      ConfigError: it does not say.
    """
    names = _scontrol("show", "hostnames", nodes).split()
    described = _scontrol("show", "node", "--oneliner", ",".join(names))
    addresses = {}
    for line in described.splitlines():
        found = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        addresses[found.get("NodeName", "")] = found.get("NodeAddr", "")
    return [(name, addresses.get(name) or name) for name in names]


def _scontrol(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["scontrol", *arguments],
            capture_output=True,
            text=True,
            timeout=_SECS,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise ConfigError(
            f'cluster.workers = "slurm": `scontrol {" ".join(arguments)}` failed: {said.strip()}'
        ) from None
    return done.stdout
