"""The plan of `trainerd install`: what it writes, and whether the unit can run."""

from __future__ import annotations

import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trainerd
from trainerd.cli.options import command_line
from trainerd.config import parse as configs
from trainerd.config.bare_script import is_script
from trainerd.config.schema import Config
from trainerd.daemon.systemd import units
from trainerd.doctor.facts import SystemdService
from trainerd.errors import ConfigError, TrainerdError, UsageError
from trainerd.system import machine
from trainerd.system.durable_files import storage
from trainerd.system.machine import NAME, WATCHER
from trainerd.system.xdg import config_home


@dataclass(frozen=True)
class File:
    """A file to write.

    Attributes:
      path, text: the file.
      mode: its mode.
      is_kept: whether one that is there already stays as it is.
    """

    path: Path
    text: str
    mode: int = 0o644
    is_kept: bool = False


@dataclass(frozen=True)
class Plan:
    """The files to write.

    Attributes:
      files: all files, in their order.
      config: the config of the service.
      service: the unit.
      copier: the unit that copies the run elsewhere; None for none.
    """

    files: tuple[File, ...]
    config: Path
    service: SystemdService
    copier: SystemdService | None = None


def make_plan(user: bool, name: str | None, config_path: Path | None) -> Plan:
    """Decide what to write, after checking that it can work.

    Raises:
      UsageError: the options do not go together, or not with this Python.
      ConfigError: the config is missing or wrong, or the service could not use it.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,21}", name):
        raise UsageError(
            f"--name {name!r}: a name has letters, digits, `-` and `_` only, begins with no `-`, and has 22 characters "
            "at most: each run has a user of its own, trainerd-NAME."
        )
    if name is not None and f"{NAME}-{name}" == WATCHER:
        raise UsageError(f"--name {name}: {WATCHER} is the watcher's own user and folder. Choose another name.")
    found = _find_config(user, name, config_path)
    if is_script(found):
        raise UsageError(
            f"a service needs a config. Write {found.with_name(configs.NAME)} with entry = {found.name!r} and a "
            "`logdir`."
        )
    config = _load(found, user, name)
    if not user:
        _require_in_state_directory(config, name)
        _require_reachable(found)
    template = f"{NAME}@.service" if name else f"{NAME}.service"
    exec_start = f"{program()} run --config {config_argument(found, user, name)}"
    text = units.render(read_template(template), exec_start, user=user)
    return Plan(
        (File(unit_folder(user) / template, text),), found, SystemdService(f"{NAME}@{name}" if name else NAME, user)
    )


def unit_folder(user: bool) -> Path:
    """Return the folder for units: a user's own, or the machine's."""
    return config_home() / "systemd" / "user" if user else machine.MACHINE.units


def config_folder(user: bool) -> Path:
    """Return the folder for the configs of units: a user's own, or the machine's."""
    return config_home() / NAME if user else machine.MACHINE.configs


def _find_config(user: bool, name: str | None, config_path: Path | None) -> Path:
    folder = config_folder(user)
    if name is not None:
        expected = folder / f"{name}.toml"
        if config_path is not None and config_path.absolute() != expected:
            raise UsageError(f"with --name {name} the config is {expected}: put it there, and leave --config out.")
        return expected
    if config_path is None:
        config_path = Path(configs.NAME) if user else folder / configs.NAME
    return (config_path / configs.NAME if config_path.is_dir() else config_path).absolute()


def config_argument(config_path: Path, user: bool, name: str | None) -> str:
    """Return the config as the unit names it: a template names one for each instance.

    Raises:
      UsageError: no unit can name it.
    """
    if name is None:
        return units.quote(str(config_path))
    return f"%E/{NAME}/%i.toml" if user else units.quote(str(machine.MACHINE.configs)) + "/%i.toml"


def _load(path: Path, user: bool, name: str | None) -> Config:
    if not path.exists():
        if (other := path.parent / configs.NAME).exists():  # another service's
            steps = [f"Copy {other} to {path} and change what it trains"]
        else:
            steps = [f"`{command_line('init')} {shlex.quote(str(path.parent))}` writes one to start from"]
            if path.name != configs.NAME:
                steps.append(f"rename its {configs.NAME} to {path.name}")
        if not user:
            steps.append(f'set logdir = "{_state_directory(name)}" in it')
        raise ConfigError(f"the config {path} does not exist. {'; '.join(steps)}; then type this again.")
    return configs.load(path)


def _state_directory(name: str | None) -> Path:
    return machine.MACHINE.state / (f"{NAME}-{name}" if name else NAME)


def _require_in_state_directory(config: Config, name: str | None) -> None:
    """Require that the run directory is in the state directory: the service's own user can write nowhere else."""
    allowed = _state_directory(name)
    rundir = Path(os.path.normpath(config.rundir))
    if not rundir.is_relative_to(allowed):
        raise ConfigError(
            f"{config.path}: logdir is {rundir}, and the service's own user can write in {allowed} only. "
            f'Write:\n  logdir = "{allowed}"'
        )


def _require_reachable(config_path: Path) -> None:
    """Require that the service, a user of its own in a sandbox, can read the config and run this Python."""
    if hidden := _hidden_under(config_path):
        raise ConfigError(
            f"the config is {config_path}, and the sandbox of the service hides {hidden}. Put it in "
            f"{machine.MACHINE.configs}, with the job beside it."
        )
    if closed := _closed_to_others(config_path):
        raise ConfigError(
            f"the service's own user cannot read {config_path}: {closed} is closed to other users. Type "
            f"`chmod o+{'rx' if closed.is_dir() else 'r'} {shlex.quote(str(closed))}`."
        )
    require_reachable_python()


def require_reachable_python(command: str = "install --system", extra: str = "") -> None:
    """Require that a service of the system, a user of its own in a sandbox, can run this Python.

    Raises:
      UsageError: it cannot.
    """
    for path in python_paths():
        if why := _why_unreachable(path):
            raise UsageError(
                f"the user of the service cannot run this trainerd: it needs {path}, and {why}. Make the virtual "
                "environment where every user can read it, with the system's Python, and type this again with it:\n"
                "  /usr/bin/python3 -m venv /opt/trainerd\n"
                f"  /opt/trainerd/bin/pip install 'PATH-OF-THE-CHECKOUT{extra}'\n"
                f"  /opt/trainerd/bin/trainerd {command}"
            )


def python_paths() -> list[Path]:
    """Return the paths that this trainerd needs to run: the interpreter, its real path, its libraries, and the
    package."""
    executable = Path(sys.executable)
    package = Path(trainerd.__file__).parent
    found = [executable, executable.resolve(), Path(sys.prefix), Path(sys.base_prefix), package, package.resolve()]
    return list(dict.fromkeys(found))


def _why_unreachable(path: Path) -> str:
    if hidden := _hidden_under(path):
        return f"a service of the machine may not see {hidden}"
    closed = _closed_to_others(path)
    return f"{closed} is closed to other users" if closed else ""


def _hidden_under(path: Path) -> Path | None:
    return next((place for place in machine.MACHINE.hidden if path.is_relative_to(place)), None)


def _closed_to_others(path: Path) -> Path | None:
    """Return the first part of a path, from the root, that an ordinary user cannot enter or read."""
    for part in [*reversed(path.parents), path]:
        needed = 0o4 if part == path and not part.is_dir() else 0o1
        if not part.stat().st_mode & needed:
            return part
    return None


def program() -> str:
    """Return the trainerd that runs now, quoted for a unit."""
    script = Path(sys.executable).with_name("trainerd")
    if os.access(script, os.X_OK):
        return units.quote_program(str(script))
    return f"{units.quote_program(sys.executable)} -m trainerd"


def read_template(name: str) -> str:
    """Return the text of a unit that ships.

    Raises:
      TrainerdError: it is not there.
    """
    folders = list(_template_folders())
    for folder in folders:
        if (folder / name).is_file():
            with storage(f"read {folder / name}"):
                return (folder / name).read_text(encoding="utf-8")
    places = " and ".join(map(str, folders))
    raise TrainerdError(f"{name} is missing from this installation: it was looked for in {places}. Install it again.")


def _template_folders() -> Iterator[Path]:
    """Yield the folders for templates: `systemd/` is beside the package in a checkout, or among its data files."""
    yield Path(trainerd.__file__).resolve().parent.parent / "systemd"
    for prefix in dict.fromkeys((sys.prefix, sysconfig.get_path("data"))):
        yield Path(prefix) / "share" / NAME / "systemd"
