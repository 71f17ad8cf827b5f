"""Listens to the sources of interruptions, each on a thread of its own, and has the runs asked."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from trainerd.errors import TrainerdError
from trainerd.system.backoff import Backoff
from trainerd.system.threads import called_every
from trainerd.watch.ask import Action
from trainerd.watch.interruptions.clouds import source_of
from trainerd.watch.interruptions.interruption import (
    AbsentError,
    InterruptionKind,
    InterruptionSource,
    MachineInterruption,
    SourceError,
)
from trainerd.watch.interruptions.logind import Logind, LogindKind
from trainerd.watch.interruptions.system_bus import SystemBus
from trainerd.watch.interruptions.ups import Ups
from trainerd.watch.settings import InterruptionsConfig, Response

log = logging.getLogger(__name__)

FIRST_RETRY_SECS, MOST_RETRY_SECS = 5.0, 60.0
_AT_ONCE_SECS = 0.001
_EVENT = {"event": "interruption"}


class Listener:
    """Listens to one source.

    Args:
      source: what announces interruptions.
      actions: what the runs are asked for, by the kind of the interruption.
      respond: asks the runs, and waits for their answers.
    """

    def __init__(
        self,
        source: InterruptionSource,
        actions: Mapping[InterruptionKind, Response],
        respond: Callable[[MachineInterruption, Action], object],
    ) -> None:
        self._source, self._actions, self._respond = source, actions, respond
        self._backoff = Backoff(FIRST_RETRY_SECS, MOST_RETRY_SECS)
        self._trouble = ""

    def listen(self) -> float:
        """Poll the source once, and respond to what it announces.

        Returns:
          The seconds until the next poll.
        """
        try:
            found = self._source.poll()
        except SourceError as error:
            if str(error) != self._trouble:
                level = logging.INFO if isinstance(error, AbsentError) else logging.WARNING
                log.log(level, "%s: %s", self._source.name, error, extra=_EVENT)
            self._trouble = str(error)
            return self._backoff.failed()
        if self._trouble:
            log.info("%s: it answers again", self._source.name, extra=_EVENT)
        self._trouble = ""
        self._backoff.succeeded()
        if found is not None:
            self._serve(found)
        return self._source.poll_secs or _AT_ONCE_SECS

    def _serve(self, interruption: MachineInterruption) -> None:
        action = self._actions[interruption.kind]
        try:
            if action != "off":
                self._respond(interruption, action)
        except (TrainerdError, OSError) as error:
            log.error("%s, and the runs cannot be asked: %s", interruption.title, error, extra=_EVENT)
        finally:
            self._source.finish()


def sources(config: InterruptionsConfig) -> list[InterruptionSource]:
    """Return the sources that a config asks for."""
    found = list[InterruptionSource]()
    settings: dict[LogindKind, Response] = {"sleep": config.sleep, "shutdown": config.shutdown}
    if kinds := [kind for kind, response in settings.items() if response != "off"]:
        found.append(Logind(SystemBus, kinds))
    if config.cloud is not None and config.spot != "off":
        found.append(source_of(config.cloud, config.metadata_url))
    if config.ups_name is not None and config.ups != "off":
        found.append(Ups(config.ups_name, config.ups_runtime_secs))
    return found


@contextlib.contextmanager
def listening(
    config: InterruptionsConfig,
    respond: Callable[[MachineInterruption, Action], object],
    found: Sequence[InterruptionSource] | None = None,
) -> Iterator[None]:
    """Listen to all sources while the block runs.

    Args:
      config: what to respond with.
      respond: asks the runs, and waits for their answers.
      found: the sources; those of the config by default.
    """
    actions: dict[InterruptionKind, Response] = {
        "sleep": config.sleep,
        "shutdown": config.shutdown,
        "spot": config.spot,
        "ups": config.ups,
    }
    with contextlib.ExitStack() as stack:
        for source in sources(config) if found is None else found:
            wake = threading.Event()
            wake.set()  # the first poll comes at once
            listen = Listener(source, actions, respond).listen
            stack.enter_context(called_every(MOST_RETRY_SECS, listen, name=source.name, wake=wake, patience=0.0))
        yield
