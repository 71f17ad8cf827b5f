"""The actions of `trainerd install`: it writes files, and has systemd read them."""

from __future__ import annotations

import shlex
import subprocess

from trainerd.cli.options import command_line
from trainerd.cli.say import say
from trainerd.cli.watch_plan import UNIT, File, WatchPlan
from trainerd.errors import TrainerdError
from trainerd.system import machine
from trainerd.system.durable_files import storage, write_atomic


def write_file(file: File) -> bool:
    """Write a file, unless it is as it should be. Says which, and returns whether it was written.

    Raises:
      StorageError: it cannot be written.
    """
    content = file.text.encode()
    with storage(f"write {file.path}"):
        if file.path.is_file() and (file.is_kept or file.path.read_bytes() == content):
            say(f"{file.path} {'is kept' if file.is_kept else 'is as it should be already'}")
            return False
        file.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file.path, content)
        file.path.chmod(file.mode)
    say(f"wrote {file.path}")
    return True


def daemon_reload(*, user: bool) -> None:
    """Have systemd read the units. If that is not possible now, say what to type."""
    if not machine.MACHINE.running.exists():
        return
    reload = [*systemctl(user), "daemon-reload"]
    done = subprocess.run(reload, capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"systemd has not read it yet ({done.stderr.strip()}): type `{shlex.join(reload)}`", err=True)


def systemctl(user: bool) -> list[str]:
    """Return the command for a user's service manager, or the machine's."""
    return ["systemctl", "--user"] if user else ["systemctl"]


def install_watcher(plan: WatchPlan, *, dry_run: bool) -> None:
    """Install the watcher.

    Raises:
      StorageError: a file cannot be written.
      TrainerdError: its user cannot be made.
    """
    if dry_run:
        say("\n".join(f"# {file.path}\n{file.text}" for file in plan.files), nl=False)
        return
    written = [write_file(file) for file in plan.files]
    if any(written):
        daemon_reload(user=plan.user)
    if not plan.user and machine.MACHINE.running.exists():
        _make_users()
    for line in _next_steps(plan):
        say(line)


def _make_users() -> None:
    try:
        subprocess.run(["systemd-sysusers"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        raise TrainerdError(f"systemd-sysusers cannot make the watcher's user: {why}") from error


def _next_steps(plan: WatchPlan) -> list[str]:
    control = shlex.join(systemctl(plan.user))
    journal = "journalctl --user-unit" if plan.user else "journalctl -u"
    steps = [
        (f"edit {plan.config}", "whom to notify, and of what"),
        (command_line("watch --test", plan.config), "try that"),
        (f"{control} enable --now {UNIT}", "watch, now and after every boot"),
        (f"{journal} {UNIT} -f", "its log"),
    ]
    if plan.user:
        steps.append(("loginctl enable-linger", "let it watch while you are logged out"))
    else:
        steps.append((f"{control} restart 'trainerd*'", "once, for the page's buttons: runs save, and continue"))
    width = max(len(typed) for typed, _ in steps)
    return ["", "Next:", *(f"  {typed:<{width}}  {what}" for typed, what in steps)]
