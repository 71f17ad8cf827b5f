"""`trainerd watch`: notifies a person of what happens to runs, shows them on a page, and has them save before the
machine stops."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from trainerd.cli.app import CommandWithExamples
from trainerd.cli.say import say
from trainerd.cli.usage import GivenPath
from trainerd.daemon import logs
from trainerd.daemon.alone import alone
from trainerd.daemon.systemd.notify import Notifier
from trainerd.errors import ConfigError
from trainerd.rundir import names
from trainerd.rundir.runs import identities, readable_paths
from trainerd.system.durable_files import storage
from trainerd.system.extras import install_command
from trainerd.system.threads import called_every
from trainerd.system.xdg import state_home
from trainerd.watch import settings
from trainerd.watch.delivery import senders
from trainerd.watch.delivery.channel import UndeliveredError, identity, service
from trainerd.watch.delivery.heartbeat import Heartbeat
from trainerd.watch.delivery.notes import Notes
from trainerd.watch.delivery.sender import CHECK, TEST
from trainerd.watch.interruptions.listener import listening
from trainerd.watch.interruptions.responder import Responder
from trainerd.watch.run_reader import Runs
from trainerd.watch.settings import PageConfig, Settings
from trainerd.watch.watcher import Watcher

log = logging.getLogger(__name__)

_LEAVE_SECS = 5.0


@click.command(
    "watch",
    cls=CommandWithExamples,
    examples={
        "trainerd watch": "Watch all runs with ~/.config/trainerd/watch.toml.",
        "trainerd watch --config watch.toml --test": "Send a test notification to each channel of a config.",
    },
    exits={75: "Another watcher of yours runs.", 78: "The config is wrong."},
)
@click.option(
    "-c",
    "--config",
    "config_path",
    type=GivenPath(path_type=Path),
    help="The config. Default: ~/.config/trainerd/watch.toml, if there is one.",
)
@click.option(
    "--test", "is_test", is_flag=True, help="Send a test notification to each channel, show the results, and exit."
)
def command(config_path: Path | None, is_test: bool) -> None:
    """Send notifications and serve a dashboard of all runs until Ctrl-C or SIGTERM.

    It also has all runs save before the machine sleeps, and pause before it shuts down.

    The config, watch.toml, says whom it notifies, of what, and at which address the dashboard is served.
    """
    path = settings.find(config_path)
    found = settings.load(path)
    if is_test:
        _test(path, found)
    else:
        with logs.shown("info"):
            _watch(path, found)


def _watch(path: Path | None, found: Settings) -> None:
    if not (found.page.listen or found.watch.channels or found.watch.heartbeat_url) and found.interruptions.is_off:
        raise ConfigError(
            f"{path} leaves nothing to do: set `channels` or `heartbeat_url` in [watch], [page] `listen`, or a key in "
            "[interruptions]."
        )
    folder = state_home() / "trainerd" / "watch"
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop.set())
    with contextlib.ExitStack() as stack:
        notifier = stack.enter_context(contextlib.closing(Notifier()))
        notes = Notes(folder, time.time())
        stack.enter_context(alone(folder, "watcher"))
        _require_channels(path, found)
        sending = stack.enter_context(contextlib.closing(senders.Senders(path, found.watch.channels, notes)))
        notes.drop_others(sending.names)
        _warn_of_unknown(found.watch.runs)
        runs = Runs()
        watcher = Watcher(found.watch, notes, sending, runs)
        if found.watch.heartbeat_url is not None:
            beat = Heartbeat(found.watch.heartbeat_url, watcher.is_well).beat
            stack.enter_context(called_every(found.watch.heartbeat_secs, beat, name="heartbeat"))
        if found.page.listen:
            stack.enter_context(_page(found.page, runs))
        respond = Responder(runs.read, watcher.report).respond
        stack.enter_context(listening(found.interruptions, respond))
        notifier.send("READY=1")
        while not stop.is_set():
            wait = watcher.check()
            notifier.send("WATCHDOG=1")
            stop.wait(wait)
        notifier.send("STOPPING=1")


def _require_channels(path: Path | None, found: Settings) -> None:
    """Require that Apprise knows all channels, in another process: it is large.

    Raises:
      ConfigError: it does not know one, or is not installed.
    """
    if path is not None and found.watch.channels:
        with storage("start a process that checks the channels"):
            process = senders.start(path, "", CHECK)
        _, why = process.communicate()
        if process.returncode == ConfigError.exit_code:
            raise ConfigError(f"{path}: {why.strip()}")


def _warn_of_unknown(wanted: Sequence[str]) -> None:
    """Warn of a name in the settings that no run has: it may be mistyped."""
    runs = identities(readable_paths())
    for name in wanted:
        if name not in names.names(runs).values() and not any(names.is_called(run, name) for run in runs):
            log.warning("watch.runs: no run is called %r yet; `trainerd list` shows all", name)


@contextlib.contextmanager
def _page(config: PageConfig, runs: Runs) -> Iterator[None]:
    """Serve the page while the block runs.

    Raises:
      ConfigError: what serves it is not installed, the address cannot be had, or needs a token.
    """
    try:
        from trainerd.watch.page.server import Page
    except ImportError as error:
        raise ConfigError(
            f"the page needs the package `{error.name}`, which is not installed. Install it with "
            f"`{install_command('watch')}`."
        ) from None
    page = Page(config.listen, runs, config.token)
    log.info("the page is at %s", page.url, extra={"event": "page"})
    thread = threading.Thread(target=page.serve, name="trainerd-page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        page.close()
        thread.join(_LEAVE_SECS)


def _test(path: Path | None, found: Settings) -> None:
    if path is None:
        raise ConfigError(f"there is no channel to try: {settings.own_path()} is not there. docs/watch.md shows one.")
    if not found.watch.channels:
        raise ConfigError(f"there is no channel to try: {path} has no `channels` in its table [watch].")
    failed = 0
    for number, url in enumerate(found.watch.channels, 1):
        _, why = (process := senders.start(path, identity(url), TEST)).communicate()
        failed += bool(process.returncode)
        result = why.strip() or f"ended with {process.returncode}" if process.returncode else "sent"
        say(f"channel {number} ({service(url)}): {result}")
    if failed:
        raise UndeliveredError(f"{failed} of {len(found.watch.channels)} notifications failed.")
