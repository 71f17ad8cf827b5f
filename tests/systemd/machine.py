"""A throw-away machine with a real systemd, for tests: systemd-nspawn over an overlay of this machine's `/`.

Nothing is mounted where others see it: the overlay lives in a mount namespace of its own, which ends with its last
process. What is left to remove is a folder in memory and a control group.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from tests.systemd.overlay import PREFIX, MachineError, interpreter, packages, prepare

TRAINERD = PREFIX / "bin" / "trainerd"
UP = ("running", "degraded")  # the states of systemd when all that it starts at boot is started, or has failed
REBOOTS = 133  # what systemd-nspawn exits with when the machine inside wants to be started again
TOOLS = (
    *("systemd-nspawn", "systemd-analyze", "nsenter", "unshare", "setpriv", "strace", "ip"),
    *("dbus-send", "pkcheck"),  # logind is asked over D-Bus, and asks polkit
    *("upsd", "upsc"),  # NUT, for a UPS
)

_NAME = "trainerd-test"
_MEMORY = Path("/dev/shm")  # an overlay's upper folder must not be on the file system below it
_CGROUPS = Path("/sys/fs/cgroup")
_HIERARCHIES = ("systemd", "unified", "memory", "pids", "cpu", "cpuacct")
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "SYSTEMD_PAGER": "",
    "SYSTEMD_COLORS": "0",
}
# Runs in a mount namespace of its own: mount the overlay, and become nspawn.
_START = """\
set -e
for procs in $CGROUPS; do echo $$ > "$procs"; done
mount -t overlay trainerd-test -o "lowerdir=/,upperdir=$FOLDER/upper,workdir=$FOLDER/work" "$FOLDER/root"
exec systemd-nspawn --directory="$FOLDER/root" --machine="$NAME" --register=no --keep-unit --private-network \\
    --link-journal=no --resolv-conf=off --timezone=off --console=read-only "$@" --boot
"""

Value = TypeVar("Value")


def wait_for(what: str, look: Callable[[], Value | None], *, seconds: float = 60.0, poll: float = 0.1) -> Value:
    """Look again and again until there is something to see.

    Args:
      what: what is waited for, for the message.
      look: returns what was waited for; None, or something else that is false, where it is not there yet.
      seconds: how long to look.
      poll: the seconds between two looks.

    Raises:
      MachineError: it did not come.
    """
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise MachineError(f"waited {seconds:.0f} s for {what}")
        time.sleep(poll)


def host(*command: str) -> None:
    """Run a command on this machine.

    Raises:
      MachineError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"`{' '.join(command)}` failed with {done.returncode}:\n{done.stdout}{done.stderr}")


def require() -> None:
    """Check that a machine can be had here.

    Raises:
      MachineError: what is missing, and what to do.
    """
    if os.geteuid() != 0:
        raise MachineError("these tests boot a systemd of their own, and that needs root")
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise MachineError(
            f"missing: {', '.join(missing)}. `apt-get install systemd systemd-container strace iproute2 dbus polkitd "
            "nut-server nut-client`."
        )
    interpreter()


class Machine:
    """One machine. `boot` it, use it, and `destroy` it; as a context manager it does so itself.

    Args:
      name: tells it apart from other machines here.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        if any(cgroup.exists() for cgroup in _own_cgroups(name)):
            raise MachineError(f"there is a machine {name}: this one needs a label of its own")
        self._folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_MEMORY))
        self._cgroups = _own_cgroups(name)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Machine:
        try:
            prepare(self._folder)
            self.boot()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.destroy()

    # ------------------------------------------------------------------ power

    def boot(self, states: Collection[str] = UP) -> None:
        """Start it, and wait until it is up.

        Args:
          states: the states of systemd that count as up. With `starting` it does not wait for services that take long.
        """
        for cgroup in self._cgroups:
            cgroup.mkdir(exist_ok=True)
        environment = os.environ | {
            "FOLDER": str(self._folder),
            "NAME": self.name,
            "CGROUPS": " ".join(str(cgroup / "cgroup.procs") for cgroup in self._cgroups),
        }
        # nspawn dies with the process that runs the tests, however that ends; `sweep` finds what is in the machine.
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "slave"]
        bind = f"--bind-ro={packages()}:{PREFIX}/packages"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "sh", "-c", _START, "sh", bind],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for("the machine to be up", lambda: self._is_up(states))

    def reboot(self, states: Collection[str] = UP) -> None:
        """`systemctl reboot`. What was written stays; the processes and /run do not. See `boot`."""
        assert self._process is not None
        self.run("systemctl", "reboot")
        if (code := self._process.wait(timeout=60)) != REBOOTS:
            raise MachineError(f"the machine ended with {code} at a reboot:\n{self._last_words()}")
        self.boot(states)

    def destroy(self) -> None:
        """Switch it off and remove what it leaves. May be called again."""
        self._power_off()
        _discard(self.name, self._folder)

    def leftovers(self) -> list[str]:
        """What there still is of it: nothing, after `destroy`."""
        found = [f"process {pid}" for pid in _members(self._cgroups)]
        found += [str(path) for path in (*self._cgroups, self._folder) if path.exists()]
        return found + [line for line in Path("/proc/mounts").read_text().splitlines() if self.name in line]

    def _power_off(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        if (first := self.first_process) is not None:
            self._kill_hung_services()
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGRTMIN + 4)  # power off
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _kill_hung_services(self) -> None:
        """No test needs a save at the very end."""
        with contextlib.suppress(MachineError, subprocess.SubprocessError):
            self.run("systemctl", "kill", "-s", "KILL", "trainerd*", check=False)

    # ------------------------------------------------------------------ use

    def run(
        self,
        *command: str | Path,
        check: bool = True,
        timeout: float = 120.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as root.

        Args:
          command: the program and its arguments.
          check: whether to raise where it fails.
          timeout: seconds.
          environment: set on top of a clean one.

        Raises:
          MachineError: it failed.
        """
        first = self.first_process
        if first is None:
            raise MachineError(f"the machine is not running:\n{self._last_words()}")
        words = ["nsenter", "--target", str(first), "--all", "--", *map(str, command)]
        variables = _ENVIRONMENT | dict(environment or {})
        done = subprocess.run(
            words, env=variables, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )
        if check and done.returncode:
            text = " ".join(map(str, command))
            raise MachineError(f"`{text}` failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def output(self, *command: str | Path) -> str:
        """What a command prints to standard output, without the white space at its ends."""
        return self.run(*command).stdout.strip()

    def path(self, inside: str | Path) -> Path:
        """A file of the machine, seen from here."""
        first = self.first_process
        if first is None:
            raise MachineError(f"the machine is not running:\n{self._last_words()}")
        return Path(f"/proc/{first}/root") / Path(inside).relative_to("/")

    def write(self, inside: str | Path, text: str) -> None:
        """Write a file of the machine that everyone can read, with the folders above it."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)

    @property
    def first_process(self) -> int | None:
        """The pid, here, of the machine's PID 1, which is a child of nspawn. Another one after each boot."""
        if self._process is None or self._process.poll() is not None:
            return None
        pid = self._process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def outer_pid(self, inner: int) -> int:
        """The pid that a process of the machine has here."""
        for pid in _members(self._cgroups):
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                line = next(line for line in status.splitlines() if line.startswith("NSpid:"))
                if int(line.split()[-1]) == inner and len(line.split()) == 3:
                    return pid
        raise MachineError(f"the machine has no process {inner}")

    # ------------------------------------------------------------------ inside

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self._log.read_text(errors="replace")[-2000:]
        return "(it left no log)"

    def _is_up(self, states: Collection[str]) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise MachineError(f"the machine did not boot:\n{self._last_words()}")
        if self.first_process is None:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = self.run("systemctl", "is-system-running", check=False, timeout=10)
            return done.stdout.strip() in states
        return False


# ---------------------------------------------------------------------- control groups


def _own_cgroups(name: str) -> list[Path]:
    """A control group in every hierarchy: two machines in one would take each other's services for their own."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS / name]
    return [_CGROUPS / hierarchy / name for hierarchy in _HIERARCHIES if (_CGROUPS / hierarchy).is_dir()]


def _members(cgroups: list[Path]) -> set[int]:
    """The processes in these control groups and those below them."""
    found: set[int] = set()
    for cgroup in cgroups:
        for procs in cgroup.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):  # it went away while it was read
                found |= {int(pid) for pid in procs.read_text().split()}
    return found - {0}


def _remove_cgroup(cgroup: Path) -> None:
    folders = sorted((folder for folder in cgroup.rglob("*") if folder.is_dir()), reverse=True)
    for folder in [*folders, cgroup]:
        with contextlib.suppress(OSError):  # what cannot be removed `leftovers` finds
            folder.rmdir()


@contextlib.contextmanager
def machine(label: str = "") -> Iterator[Machine]:
    """A booted machine for as long as the block runs.

    Args:
      label: tells it apart from another one of the same process.

    Raises:
      MachineError: there can be none here.
    """
    require()
    sweep()
    with Machine("-".join(filter(None, (_NAME, label, str(os.getpid()))))) as booted:
        yield booted


def sweep() -> None:
    """Remove what machines left whose tests were killed with SIGKILL."""
    for folder in _MEMORY.glob(f"{_NAME}-*-*"):
        name, _, _ = folder.name.rpartition("-")
        if not Path("/proc", name.rpartition("-")[2]).exists():
            _discard(name, folder)


def _discard(name: str, folder: Path) -> None:
    cgroups = _own_cgroups(name)
    for pid in _members(cgroups):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(MachineError):
        wait_for("the last process to end", lambda: not _members(cgroups), seconds=10)
    for cgroup in cgroups:
        _remove_cgroup(cgroup)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(Path("/run/systemd/nspawn/propagate") / name, ignore_errors=True)
