"""`trainerd agent`: trains the runs of the queue."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from trainerd.agent import notes, settings
from trainerd.agent.agent import Agent, available_memory
from trainerd.agent.plan import Room
from trainerd.agent.queue_folder import QueueFolder
from trainerd.agent.settings import AgentSettings
from trainerd.agent.starter import Starter
from trainerd.agent.when.facts import Probe
from trainerd.agent.when.judge import WhenJudge
from trainerd.agent.when.machine import MachineProbes
from trainerd.cli.app import CommandWithExamples
from trainerd.cli.usage import GivenPath
from trainerd.daemon import logs
from trainerd.daemon.alone import alone
from trainerd.daemon.systemd.notify import Notifier
from trainerd.text import counted

log = logging.getLogger(__name__)


@click.command(
    "agent",
    cls=CommandWithExamples,
    examples={
        "trainerd agent": "Train the runs of the queue, with ~/.config/trainerd/agent.toml.",
        "trainerd agent --config two.toml": "The same with another config.",
    },
    exits={75: "Another agent of yours runs.", 78: "The config is wrong."},
)
@click.option(
    "-c",
    "--config",
    "config_path",
    type=GivenPath(path_type=Path),
    help="The config. Default: ~/.config/trainerd/agent.toml, if there is one.",
)
def command(config_path: Path | None) -> None:
    """Train the runs of the queue until Ctrl-C or SIGTERM: each when it may, as many at a time as there is room for.

    The runs continue when the agent ends, and the next agent takes them over. agent.toml says how many train at a time.
    """
    found = settings.load(config_path if config_path is not None else settings.find())
    with logs.shown("info"):
        _run(found)


def _run(found: AgentSettings) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop.set())
    gpus = found.present_gpus()
    slots = found.slots or max(1, len(gpus))
    with contextlib.ExitStack() as stack:
        notifier = stack.enter_context(contextlib.closing(Notifier()))
        stack.enter_context(alone(notes.folder(), "agent"))
        probes = MachineProbes()
        room = partial(_room, slots, gpus, found.share_secs, probes)
        agent = Agent(QueueFolder(), room, Starter(), WhenJudge(probes))
        log.info("the agent trains %s at a time%s", counted(slots, "run"), _of_gpus(gpus), extra={"event": "agent"})
        notifier.send("READY=1")
        while not stop.is_set():
            wait = agent.check()
            notifier.send("WATCHDOG=1")
            stop.wait(wait)
        notifier.send("STOPPING=1")


def _room(
    slots: int, gpus: tuple[int, ...], share_secs: float | None, probes: MachineProbes, own_pids: Sequence[int]
) -> Room:
    on_gpus = probes.read({Probe.GPU_MEMORY}, own_pids).gpu_memory if gpus else None
    return Room(slots, gpus, available_memory(), share_secs, on_gpus or {})


def _of_gpus(gpus: tuple[int, ...]) -> str:
    return f", on the GPUs {', '.join(map(str, gpus))}" if gpus else ""
