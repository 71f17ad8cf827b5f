"""Reads the table `[when]` of configs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainerd.config import edit
from trainerd.config import parse as configs
from trainerd.config.bare_script import is_script
from trainerd.config.schema import WhenConfig
from trainerd.errors import TrainerdError
from trainerd.rundir.runs import Stamp, stamp_of

_TABLE = "when."


class WhenConfigs:
    """Reads the table `[when]` of configs, each again only when its file has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, tuple[str, ...]], tuple[tuple[Stamp | None, ...], WhenConfig]] = {}

    def read(self, config: Path, changes: Sequence[str] = ()) -> WhenConfig:
        """Return the table. While the config cannot be read it stays as it was: a start says what is wrong with it.

        Args:
          config: the config, or a script.
          changes: the keys of it that differ, each as KEY=VALUE.

        Raises:
          TrainerdError: the config cannot be read, and was not read before.
        """
        changes = tuple(each for each in changes if each.startswith(_TABLE))
        beside = stamp_of(config.with_name(configs.NAME)) if is_script(config) else None
        stamps = stamp_of(config), beside
        known = self._known.get((config, changes))
        if known is not None and known[0] == stamps:
            return known[1]
        try:
            found = edit.with_changes(configs.load(config), edit.read_changes(changes)).when
        except TrainerdError:
            if known is None:
                raise
            found = known[1]
        self._known[config, changes] = stamps, found
        return found
