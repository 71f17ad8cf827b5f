"""Judges whether `[when]` of a run's config lets it train now."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from trainerd.agent.when.conditions import Verdict, judge, wanted
from trainerd.agent.when.facts import MachineFacts, Probe
from trainerd.agent.when.local_time import local_time
from trainerd.config import edit
from trainerd.config import parse as configs
from trainerd.config.schema import WhenConfig
from trainerd.errors import TrainerdError
from trainerd.rundir.runs import Stamp, stamp_of

_TABLE = "when."


class Judge:
    """Judges runs. A config is read again when its file changes.

    Args:
      read: reads facts of the machine; see `MachineProbes.read`.
      clock: seconds since 1970 (UTC).
    """

    def __init__(
        self,
        read: Callable[[Collection[Probe], Collection[int]], MachineFacts],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._read, self._clock = read, clock
        self._known: dict[tuple[Path, tuple[str, ...]], tuple[tuple[Stamp | None, ...], WhenConfig]] = {}

    def judge(
        self,
        config: Path,
        changes: Collection[str],
        *,
        is_training: bool,
        gpus: Collection[int] | None,
        own_pids: Collection[int],
    ) -> Verdict:
        """Return whether a run may train now.

        Args:
          config: its config, or a script.
          changes: the keys of it that differ, each as KEY=VALUE.
          is_training: whether it trains.
          gpus: the GPUs that it has or is to get; None: all.
          own_pids: the processes of the agent's runs.
        """
        when = self._when(config, tuple(each for each in changes if each.startswith(_TABLE)))
        if when == WhenConfig():
            return Verdict(True)
        facts = self._read(wanted(when), own_pids)
        return judge(when, local_time(self._clock()), facts, is_training=is_training, gpus=gpus)

    def has_conditions(self, config: Path) -> bool:
        """Return whether a config has a table `[when]` with anything in it."""
        return self._when(config, ()) != WhenConfig()

    def _when(self, config: Path, changes: tuple[str, ...]) -> WhenConfig:
        """Return the table. While the config cannot be read it stays as it was: a start says what is wrong with it."""
        stamps = stamp_of(config), stamp_of(config.with_name(configs.NAME))
        known = self._known.get((config, changes))
        if known is not None and known[0] == stamps:
            return known[1]
        try:
            found = configs.load(config)
            when = edit.with_changes(found, edit.read_changes(changes)).when
        except TrainerdError:
            when = known[1] if known is not None else WhenConfig()
        self._known[config, changes] = stamps, when
        return when
