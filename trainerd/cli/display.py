"""The live display of `trainerd run` on a terminal."""

from __future__ import annotations

import logging
import sys
import time
import weakref

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainerd.daemon.tensorflow_import import beside_redirection
from trainerd.rundir.state import State
from trainerd.text import printable, seconds, size

_STYLE = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "bold red"}


class _AboveDisplay(logging.Handler):
    """Prints log records above the live display."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", "") == "progress":
            return  # The display shows it.
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = Text.assemble((f"{when} ", "dim"), (printable(record.getMessage()), _STYLE.get(record.levelno, "")))
        try:
            self._console.print(text, highlight=False)
        except Exception:  # as logging's own handlers: what cannot be shown is no error of who logs
            self.handleError(record)


class Display:
    """Shows the last state it was given, from the first one on; `handler` prints log records above it."""

    def __init__(self, console: Console | None = None) -> None:
        if console is None:
            own = beside_redirection(sys.stderr)
            console = Console(file=own)
            if own is not sys.stderr:
                weakref.finalize(console, own.close)
        self._console = console
        self._state = State()
        self.handler: logging.Handler = _AboveDisplay(self._console)
        self._live = Live(
            get_renderable=self.render, console=self._console, refresh_per_second=4, redirect_stderr=False
        )

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def observe(self, state: State) -> None:
        """Show this state from now on."""
        self._state = state
        if not self._live.is_started:
            self._live.start()

    def render(self) -> RenderableType:
        """Return the display of the present state."""
        return render(self._state, time.time())


def render(state: State, now: float) -> RenderableType:
    """Return one state as a table.

    Args:
      state: what is shown.
      now: seconds since 1970 (UTC), for the age of the last checkpoint.
    """
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    of = f" of {state.end:,}" if state.end else ""
    table.add_row(str(state.phase), f"step {state.step:,}{of}")
    for name, value in state.shown_metrics().items():
        table.add_row(Text(printable(" ".join(name.split()))), value)  # a name may contain markup and newlines
    if not state.phase.is_over:
        rate = f"{state.steps_per_sec:,.0f} steps/s" if state.steps_per_sec else "–"
        eta = f", {seconds(state.eta_secs)} left" if state.eta_secs is not None else ""
        table.add_row("rate", rate + eta)
    if (saved := state.last_checkpoint) is not None:
        table.add_row("saved", f"step {saved.step:,}, {seconds(max(0.0, now - saved.at))} ago")
    else:
        table.add_row("saved", "not yet")
    table.add_row("memory", size(state.memory_bytes))
    for worker in state.workers:
        table.add_row(f"worker {worker.rank}", worker.line(now))
    for warning in state.warnings:
        table.add_row("warning", Text(printable(warning), style="yellow"))
    if state.end and not state.phase.is_over:
        table.add_row("", ProgressBar(total=state.end, completed=state.step, width=60))
    return table if state.phase.is_over else Group(table, Text("Ctrl-C saves and exits.", style="dim"))
