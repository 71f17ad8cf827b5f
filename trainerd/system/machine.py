"""The folders of a machine where services and their runs are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAME = "trainerd"  # of the service, of its run directory and of the folder of its configs
WATCHER = "trainerd-watch"  # of the watcher's service, of its user and of its folder


@dataclass(frozen=True)
class Machine:
    """The folders of a machine that matter to a unit.

    Attributes:
      units: the folder of root's units.
      configs: the folder of their configs.
      users: the folder of the users that systemd makes.
      logind: the folder of additions to logind's config.
      state: the folder that StateDirectory= is in.
      hidden: the folders that the sandbox of a system unit hides.
      running: a folder that exists while systemd runs.
    """

    units: Path = Path("/etc/systemd/system")
    configs: Path = Path("/etc/trainerd")
    users: Path = Path("/etc/sysusers.d")
    logind: Path = Path("/etc/systemd/logind.conf.d")
    state: Path = Path("/var/lib")
    hidden: tuple[Path, ...] = tuple(map(Path, ("/root", "/home", "/run/user", "/tmp", "/var/tmp")))
    running: Path = Path("/run/systemd/system")


MACHINE = Machine()
