"""The actions of `trainerd install`: it writes files, and has systemd read them."""

from __future__ import annotations

import shlex
import subprocess

from trainerd.cli.install.plan import File, Plan
from trainerd.cli.say import say
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


def write_files(plan: Plan) -> None:
    """Write the files of a plan, and have systemd read them. If that is not possible now, say what to type.

    Raises:
      StorageError: a file cannot be written.
    """
    written = [write_file(file) for file in plan.files]
    if not any(written) or not machine.MACHINE.running.exists():
        return
    reload = [*plan.service.systemctl.split(), "daemon-reload"]
    done = subprocess.run(reload, capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"systemd has not read it yet ({done.stderr.strip()}): type `{shlex.join(reload)}`", err=True)


def make_users() -> None:
    """Have systemd make the watcher's user, if systemd runs.

    Raises:
      TrainerdError: it cannot.
    """
    if not machine.MACHINE.running.exists():
        return
    try:
        subprocess.run(["systemd-sysusers"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        raise TrainerdError(f"systemd-sysusers cannot make the watcher's user: {why}") from error
