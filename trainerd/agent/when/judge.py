"""Judges whether a run may train now."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from trainerd.agent.when.conditions import WhenVerdict, judge_hours, judge_machine, wanted
from trainerd.agent.when.local_time import local_time
from trainerd.agent.when.machine import MachineProbes
from trainerd.config.schema import WhenConfig


class WhenJudge:
    """Judges runs by the clock and by the machine, which is read only within the hours of a run that needs it.

    Args:
      probes: reads the machine.
      clock: seconds since 1970 (UTC).
    """

    def __init__(self, probes: MachineProbes, clock: Callable[[], float] = time.time) -> None:
        self._probes, self._clock = probes, clock
        self._second = 0
        self._by_hours: dict[object, WhenVerdict] = {}  # in this second: many runs have the same hours

    def judge(
        self,
        when: WhenConfig,
        own_pids: Collection[int],
        *,
        is_training: bool,
        gpus: Collection[int] | None = None,
    ) -> WhenVerdict:
        """Return whether a run may train now.

        Args:
          when: its `[when]`.
          own_pids: the processes of all runs of the agent, which do not count as others.
          is_training: whether it trains now.
          gpus: the GPUs that it has, none if it waits for some; None if it has all.
        """
        by_hours = self._judge_hours(when)
        needed = wanted(when)
        if not by_hours.may_train or not needed:
            return by_hours
        facts = self._probes.read(needed, own_pids)
        by_machine = judge_machine(when, facts, is_training=is_training, gpus=gpus)
        return replace(by_hours, busy_gpus=by_machine.busy_gpus) if by_machine.may_train else by_machine

    def _judge_hours(self, when: WhenConfig) -> WhenVerdict:
        now = self._clock()
        if int(now) != self._second:
            self._second, self._by_hours = int(now), {}
        key = when.hours, when.days
        if key not in self._by_hours:
            self._by_hours[key] = judge_hours(when, local_time(now))
        return self._by_hours[key]
