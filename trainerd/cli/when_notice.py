"""What a start by hand says outside of the hours and conditions of `[when]`."""

from __future__ import annotations

from trainerd.agent.when.conditions import judge, wanted
from trainerd.agent.when.local_time import local_time
from trainerd.agent.when.machine import MachineProbes
from trainerd.cli.say import say
from trainerd.config.schema import Config, WhenConfig


def say_when(config: Config, now: float) -> None:
    """Say that the agent would not train this run now, if that is so; `now` is in seconds since 1970 (UTC)."""
    if config.when == WhenConfig():
        return
    facts = MachineProbes().read(wanted(config.when), ())
    verdict = judge(config.when, local_time(now), facts, is_training=False)
    if not verdict.may_train:
        say(
            f"`[when]` keeps the agent from starting this run now: {verdict.why}. It trains all the same, since you "
            "started it. `trainerd agent` pauses it when its next hours end.",
            err=True,
        )
