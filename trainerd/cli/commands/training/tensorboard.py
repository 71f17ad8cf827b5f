"""`trainerd tensorboard`: show a run's curves."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from types import ModuleType

import click

from trainerd.cli import as_owner, options
from trainerd.cli.app import CommandOfRun
from trainerd.cli.say import say
from trainerd.cli.usage import Whole
from trainerd.errors import UsageError

# TensorBoard asks whether this module exists, and where it does, leaves TensorFlow alone. A folder of event files can
# be served without: it starts in one second, not five, and none of TensorFlow's comments on the machine are printed.
_WITHOUT_TENSORFLOW = "tensorboard.compat.notf"


@click.command(
    "tensorboard",
    cls=CommandOfRun,
    examples={
        "trainerd tensorboard": "Serve the run of the current folder at http://127.0.0.1:6006.",
        "trainerd tensorboard runs --port 6007": "Compare all runs below the folder `runs`.",
    },
    context_settings={"ignore_unknown_options": True},
)
@options.of_one_run
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address to serve at.")
@click.option("--port", default=6006, show_default=True, type=Whole(0, 65535), help="The port; 0: any.")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
def command(run: options.RunOptions, host: str, port: int, more: tuple[str, ...]) -> None:
    """Serve a run directory in TensorBoard until Ctrl-C. Other machines are served only with --host.

    If RUN is a folder of several run directories, TensorBoard shows them side by side. Other options are passed
    to TensorBoard.
    """
    path = options.find_rundir(run).path
    as_owner.require_roots_alone(path, "has TensorBoard read its files")
    require_free(host, port)
    if not path.is_dir():
        say(f"There is no {path} yet. It is shown as soon as something is trained there.", err=True)
    arguments = ["--logdir", str(path), "--host", host, "--port", str(port), "--reload_interval", "2", *more]
    sys.exit(serve(arguments))


def require_free(host: str, port: int) -> None:
    """Refuse a port that something listens on, before the seconds that TensorBoard takes to find out.

    Raises:
      UsageError: the port is taken.
    """
    if port == 0:
        return
    # What is wrong with the host, TensorBoard says itself.
    with contextlib.suppress(socket.gaierror):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(address)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        raise UsageError(
                            f"port {port} of {host} is in use. If another TensorBoard has it, open "
                            f"http://{host}:{port}/; or choose a port with --port ({port + 1}, or 0 for any)."
                        ) from None


def serve(arguments: list[str]) -> int:
    """Run TensorBoard in this process until Ctrl-C or SIGTERM ends it. Returns its exit code."""
    sys.modules.setdefault(_WITHOUT_TENSORFLOW, ModuleType(_WITHOUT_TENSORFLOW))
    from tensorboard import default, program
    from tensorboard.plugins import base_plugin

    server = program.TensorBoard(plugins=default.get_plugins())
    try:
        server.configure(argv=["tensorboard", *arguments])
    except base_plugin.FlagsError as error:
        raise UsageError(f"TensorBoard: {error}") from None
    try:
        return 0 if server.main() == 0 else 1
    except KeyboardInterrupt:
        return 0
