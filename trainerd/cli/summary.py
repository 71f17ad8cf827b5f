"""The summary at the end of `trainerd run`: the result, and the commands that may follow."""

from __future__ import annotations

from trainerd.cli.options import RunOptions, command_line
from trainerd.config.schema import Config
from trainerd.loop.outcome import Outcome, reached
from trainerd.rundir.state import Phase, State
from trainerd.text import size


def summary(
    outcome: Outcome, state: State, config: Config, run: RunOptions, *, is_of_several: bool = False
) -> list[str]:
    """Return the lines of the summary.

    Args:
      outcome: how training ended.
      state: the run's last state.
      config: what a start without options would train.
      run: the options that chose it.
      is_of_several: whether it is a worker of several: a command that trains would train alone.
    """
    how = str(outcome)
    lines = ["", f"{how[0].upper()}{how[1:]}.", f"  {state.line()}"]
    if (saved := state.last_checkpoint) is not None:
        lines.append(f"  {saved.path} ({size(saved.bytes)})")
    typed = {command_line("tensorboard", run.config_path, run.logdir): "show the curves"}
    given = [*run.set_options(), *run.of_script()]
    for command, what in ({} if is_of_several else _training(outcome, state, config)).items():
        typed[command_line(command, run.config_path, run.logdir, given)] = what
    width = max(map(len, typed))
    return [*lines, "", "Next:", *(f"  {command:<{width}}  {what}" for command, what in typed.items())]


def _training(outcome: Outcome, state: State, config: Config) -> dict[str, str]:
    """Return the commands that train on, and what each does."""
    if outcome.phase is Phase.PAUSED:
        further = _further(config, state)
        return {f"run{further}": "resume at the next step", f"start{further}": "resume in the background"}
    if outcome.by_job:
        return {}
    return {
        f"run --max-steps {2 * max(state.step, 1)}": "train for longer",
        "run --forever": "train until it is paused",
        "start --forever": "the same in the background",
    }


def _further(config: Config, state: State) -> str:
    """Return the option that was given to train past the end that the config sets: without it the run would not
    continue."""
    if reached(config, state.step, state.metrics) is None:
        return ""
    return f" --max-steps {state.max_steps}" if state.max_steps else " --forever"
