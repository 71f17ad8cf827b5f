"""`trainerd install`: write the systemd unit that trains a config in the background, from boot to boot."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from trainerd.cli.app import CommandWithExamples
from trainerd.cli.install import slurm_script
from trainerd.cli.install.agent_plan import make_agent_plan
from trainerd.cli.install.copy_plan import with_copier
from trainerd.cli.install.files import make_users, write_files
from trainerd.cli.install.plan import Plan, make_plan
from trainerd.cli.install.watch_plan import DELAY, delay_commands, make_watch_plan
from trainerd.cli.options import command_line, load_config
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath
from trainerd.doctor.facts import SystemdService
from trainerd.errors import UsageError
from trainerd.system import machine


@click.command(
    "install",
    cls=CommandWithExamples,
    examples={
        "trainerd install --user": "Install a unit for the config of the current folder.",
        "sudo trainerd install --system --name digits": "Install one for /etc/trainerd/digits.toml.",
        "trainerd install --user --dry-run": "Show the unit.",
    },
)
@click.option(
    "--user", "for_user", is_flag=True, help="For your user: ~/.config/systemd/user. The default, except for root."
)
@click.option("--system", "for_all", is_flag=True, help="For the machine: /etc/systemd/system. The default for root.")
@click.option(
    "--name", metavar="NAME", help="One of several runs: write trainerd@.service, for `systemctl start trainerd@NAME`."
)
@click.option(
    "-c",
    "--config",
    "config_path",
    type=GivenPath(path_type=Path),
    help="The config. Default: /etc/trainerd/trainerd.toml with --system, ./trainerd.toml with --user.",
)
@click.option(
    "--slurm", is_flag=True, help="Write a script for Slurm, trainerd.sbatch, beside the config in place of a unit."
)
@click.option(
    "--watch", "is_watcher", is_flag=True, help="Install the watcher, trainerd-watch.service, in place of a run."
)
@click.option(
    "--agent",
    "is_agent",
    is_flag=True,
    help="Install the agent, which trains a user's queue, in place of a run: trainerd-agent.service, or with --system "
    "trainerd-agent@.service, for `systemctl start trainerd-agent@USER`.",
)
@click.option("--dry-run", is_flag=True, help="Show the unit and write nothing.")
def command(
    for_user: bool,
    for_all: bool,
    name: str | None,
    config_path: Path | None,
    slurm: bool,
    is_watcher: bool,
    is_agent: bool,
    dry_run: bool,
) -> None:
    """Install a systemd unit, so that a run trains in the background and resumes after a reboot."""
    if slurm:
        _install_slurm(config_path, dry_run)
        return
    if for_user and for_all:
        raise UsageError("--user and --system contradict each other.")
    if is_agent and is_watcher:
        raise UsageError("--agent and --watch contradict each other.")
    user = for_user or (not for_all and os.geteuid() != 0)
    if not user and not dry_run and os.geteuid() != 0:
        raise UsageError(
            f"writing to {machine.MACHINE.units} needs root. Type `sudo {command_line('install --system')}`, or "
            f"install it for yourself alone: `{command_line('install --user')}`."
        )
    if (is_watcher or is_agent) and (name is not None or config_path is not None):
        what, who = ("--watch", "the watcher") if is_watcher else ("--agent", "the agent")
        raise UsageError(f"{what} takes no --name and no --config: {who} has a config of its own.")
    if is_watcher:
        plan = make_watch_plan(user)
    else:
        plan = make_agent_plan(user) if is_agent else with_copier(make_plan(user, name, config_path), name)
    if dry_run:
        say("\n".join(f"# {file.path}\n{file.text}" for file in plan.files), nl=False)
        return
    write_files(plan)
    if is_watcher and not user:
        make_users()
    steps = _watch_steps(plan) if is_watcher else _agent_steps(plan) if is_agent else _train_steps(plan)
    width = max(len(typed) for typed, _ in steps)
    say("\n".join(["", "Next:", *(f"  {typed:<{width}}  {what}" for typed, what in steps)]))
    if is_watcher:
        sudo = "sudo " if user else ""
        say("\n".join(["", DELAY, *(f"  {typed}" for typed in delay_commands(sudo))]))


def _install_slurm(config_path: Path | None, dry_run: bool) -> None:
    config = load_config(config_path)
    if config.path is None:
        raise UsageError("this folder has no trainerd.toml: `trainerd init DIR` writes one to start from.")
    if dry_run:
        say(slurm_script.script(config.path, config.rundir / "state.json"), nl=False)
        return
    path = slurm_script.write(config.path, config.rundir)
    say(f"wrote {path}")
    say(f"Next:  sbatch --nodes=2 --ntasks-per-node=1 {shlex.quote(str(path))}")


def _train_steps(plan: Plan) -> list[tuple[str, str]]:
    """Return the commands to type next, and what each does."""
    service, copier = plan.service, plan.copier
    units, what = (service.name, "train") if copier is None else (f"{service.name} {copier.name}", "train and copy")
    steps = [
        (f"{service.systemctl} enable --now {units}", _when(what, service)),
        (f"{service.journalctl} {service.name} -f", "what it is doing"),
        (command_line("status", plan.config), "step, loss, rate, last checkpoint"),
        (f"{service.systemctl} stop {service.name}", "save and stop"),
    ]
    if service.user:
        steps.insert(1, ('loginctl enable-linger "$USER"', "train from boot on, and while you are logged out"))
    return steps


def _when(what: str, service: SystemdService) -> str:
    """Return when an enabled unit does something. The units of a user who does not linger start at a login."""
    return f"{what} now, and whenever you log in" if service.user else f"{what} now, and after every boot"


def _agent_steps(plan: Plan) -> list[tuple[str, str]]:
    """Return the same for the agent."""
    service = plan.service
    who = "" if service.user else "as that user: "
    steps = [
        (f"edit {plan.config}", f"{who}how many runs train at a time"),
        (f"{service.systemctl} enable --now {service.name}", _when("train the queue", service)),
        (command_line("queue add"), f"{who}add the run of the current folder"),
        (f"{service.journalctl} {service.name} -f", "the agent's log"),
    ]
    if service.user:
        steps.insert(2, ('loginctl enable-linger "$USER"', "train from boot on, and while you are logged out"))
    return steps


def _watch_steps(plan: Plan) -> list[tuple[str, str]]:
    """Return the same for the watcher."""
    service = plan.service
    steps = [
        (f"edit {plan.config}", "whom to notify, and of what"),
        (command_line("watch --test", plan.config), "try that"),
        (f"{service.systemctl} enable --now {service.name}", _when("watch", service)),
        (f"{service.journalctl} {service.name} -f", "its log"),
    ]
    if service.user:
        steps.append(('loginctl enable-linger "$USER"', "watch from boot on, and while you are logged out"))
    else:
        restart = f"{service.systemctl} restart 'trainerd*'"
        steps.append((restart, "once, for the page's buttons: runs save, and continue"))
    return steps
