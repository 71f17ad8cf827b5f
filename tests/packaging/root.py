"""A root: the folder of another system, in which commands run with its own programs and its own PID 1.

What is mounted is mounted in a namespace of the command's own. It goes when the command ends, however it ends.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_MINUTES = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Root, then pairs of a source and a place in the root, then --, then the command.
_ENTER = """\
set -e
root=$1
shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
  mount --bind "$1" "$root$2"
  shift 2
done
shift
exec chroot "$root" "$@"
"""


class RootError(Exception):
    """A root cannot be had, or a command in it failed."""


def host(*command: str | Path, minutes: float = 10.0) -> str:
    """Run a command on this machine. What it prints.

    Raises:
      RootError: it failed.
    """
    return _checked(_run([str(word) for word in command], None, minutes))


@dataclass(frozen=True)
class Root:
    """A root.

    Args:
      path: its folder.
      binds: files and folders of this machine, and where in the root they are. There they must exist: see `place`.
    """

    path: Path
    binds: dict[Path, str] = field(default_factory=dict)

    def inside(self, path: str | Path) -> Path:
        """A path of the root, seen from here. No link of the root may be on it."""
        return self.path / Path(path).relative_to("/")

    def place(self, source: Path, target: str | None = None) -> None:
        """Show a file or a folder of this machine in the root, in the same place unless another is named."""
        at = self.inside(target or source)
        folder = at if source.is_dir() else at.parent
        folder.mkdir(parents=True, exist_ok=True)
        if not source.is_dir():
            at.touch()
        self.binds[source] = str(target or source)

    def command(self, *words: str | Path, user: int = 0, home: str = "/root") -> list[str]:
        """What enters the root and becomes this command, with a clean environment, as PID 1.

        Args:
          words: the program and its arguments; `NAME=VALUE` before the program is put into the environment.
          user: its user and group, by number.
          home: its home, where it begins.
        """
        # What runs in it ends with what runs the tests, however that ends.
        enter = "setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child sh -c".split()
        binds = [word for pair in self.binds.items() for word in map(str, pair)]
        rights = [] if user == 0 else f"setpriv --reuid {user} --regid {user} --clear-groups".split()
        environment = ["env", "-i", f"--chdir={home}", f"PATH={_PATH}", f"HOME={home}", "LANG=C.UTF-8"]
        return [*enter, _ENTER, "sh", str(self.path), *binds, "--", *rights, *environment, *map(str, words)]

    def run(self, *words: str | Path, user: int = 0, home: str = "/root", minutes: float = 10.0) -> str:
        """Run a command in it. What it prints.

        Raises:
          RootError: it failed.
        """
        return _checked(_run(self.command(*words, user=user, home=home), None, minutes))


def _run(words: list[str], environment: Mapping[str, str] | None, minutes: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=minutes * _MINUTES,
        umask=0o022,
        check=False,
    )


def _checked(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        text = " ".join(done.args[-6:])
        raise RootError(f"`… {text}` failed with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout
