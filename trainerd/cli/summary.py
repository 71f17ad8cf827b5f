"""What `trainerd run` says at its end: how it went, and what one can do next."""

from __future__ import annotations

from pathlib import Path

from trainerd.cli.options import command_line
from trainerd.cli.text import seconds, size
from trainerd.state import Phase, State
from trainerd.supervisor.supervisor import Outcome


def summary(outcome: Outcome, state: State, config_path: Path | None, logdir: Path | None) -> list[str]:
    """The lines of the summary."""

    def line(command: str, what: str) -> str:
        return f"  {command_line(command, config_path, logdir):<42} {what}"

    lines = ["", f"{str(outcome.phase).capitalize()}: {outcome.why}.", f"  {state.line()}"]
    if (saved := state.last_checkpoint) is not None:
        lines.append(f"  {saved.path} ({size(saved.bytes)}, in {seconds(saved.seconds)})")
    lines += ["", "Next:", line("tensorboard", "look at the curves")]
    if outcome.phase is Phase.PAUSED:
        lines.append(line("run", "go on at the next step"))
    else:
        lines.append(line(f"run --max-steps {2 * max(state.step, 1)}", "train for longer"))
        lines.append(line("run --forever", "train until it is paused"))
    lines.append(line("start", "train in the background"))
    return lines
