"""The notice of a start by hand outside of the hours and conditions of `[when]`."""

from __future__ import annotations

from trainerd.agent.when.judge import WhenJudge
from trainerd.agent.when.machine import MachineProbes
from trainerd.cli.say import say
from trainerd.config.schema import Config, WhenConfig


def say_when(config: Config) -> None:
    """Say that the agent would not train this run now, if that is so."""
    if config.when == WhenConfig():
        return
    verdict = WhenJudge(MachineProbes()).judge(config.when, (), is_training=False)
    if not verdict.may_train:
        say(
            f"`[when]` keeps the agent from starting this run now: {verdict.why}. It trains all the same, since you "
            "started it. `trainerd agent` pauses it the next time that `[when]` ends its training.",
            err=True,
        )
