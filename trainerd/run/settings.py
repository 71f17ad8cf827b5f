"""The settings of a program for its checkpoints and curves."""

from __future__ import annotations

from dataclasses import dataclass

from trainerd.config.schema import CheckpointConfig, Config, EvaluateConfig, LogConfig, SummaryConfig
from trainerd.history.run_job import this_program

_FOR_EVER = 2**62


@dataclass(frozen=True)
class KeepSettings:
    """The number of checkpoints to keep: the last `last`, and one for each `hours` hours. 0: none by that rule."""

    last: int = 5
    hours: float = 0.0


def as_config(
    logdir: str, keep: KeepSettings | None, secs: float, steps: int, metrics_secs: float, metrics_steps: int
) -> Config:
    """Return the config that a program's session has: what a trainerd.toml would say of it.

    Args:
      logdir: the run directory; "" for none.
      keep: how many checkpoints are kept; None if none are made.
      secs, steps: between checkpoints. 0: none by that.
      metrics_secs, metrics_steps: between points of the metrics' curves. 0: none by that.
    """
    kept = keep or KeepSettings(0)
    return Config(
        entry=this_program(),
        logdir=logdir,
        stop_on_nan=False,
        checkpoint=CheckpointConfig(
            save_model_secs=secs if keep else 0,
            save_model_steps=steps if keep else 0,
            keep_last=kept.last or _FOR_EVER,
            keep_every_hours=kept.hours,
        ),
        summary=SummaryConfig(save_summaries_secs=0, metrics_secs=metrics_secs, metrics_steps=metrics_steps),
        evaluate=EvaluateConfig(evaluate_secs=0),
        log=LogConfig(progress_secs=0),
    )
