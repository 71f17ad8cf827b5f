"""The live display of `trainerd run` on a terminal."""

from __future__ import annotations

import logging
import sys
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainerd.cli.sparkline import MetricHistory
from trainerd.daemon.tensorflow_import import beside_redirection
from trainerd.errors import StorageError
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import UNMANAGED, Phase, State
from trainerd.text import printable, seconds, size

KEYS = "s saves · p pauses · l hides the log · m metrics · "  # a line of 80 columns with what follows
_SURE_SECS = 4.0  # within which p must be pressed again
_HIDDEN = 20  # records that are shown when the log is shown again
_STYLE = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "bold red"}


class _AboveDisplay(logging.Handler):
    """Prints log records above the live display."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._is_hidden = False
        self._hidden: deque[Text] = deque(maxlen=_HIDDEN)

    def hide(self, is_hidden: bool) -> None:
        """Hide all records but warnings and errors; or show them, the last of those that were hidden first."""
        self._is_hidden = is_hidden
        while not is_hidden and self._hidden:
            self._console.print(self._hidden.popleft(), highlight=False)

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", "") == "progress":
            return  # The display shows it.
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = Text.assemble((f"{when} ", "dim"), (printable(record.getMessage()), _STYLE.get(record.levelno, "")))
        if self._is_hidden and record.levelno < logging.WARNING:
            self._hidden.append(text)
            return
        try:
            self._console.print(text, highlight=False)
        except Exception:  # as logging's own handlers: what cannot be shown is not an error of who logs
            self.handleError(record)


class Display:
    """Shows the last state it was given, from the first one on; `handler` prints log records above it.

    Args:
      console: where. Default: standard error.
      rundir: the run directory, if keys are read.
    """

    def __init__(self, console: Console | None = None, rundir: RunDirectory | None = None) -> None:
        if console is None:
            own = beside_redirection(sys.stderr)
            console = Console(file=own)
            if own is not sys.stderr:
                weakref.finalize(console, own.close)
        self._console = console
        self._state = State()
        self._rundir = rundir
        self._history = MetricHistory()
        self._is_log_hidden = False
        self._metric: str | None = None  # the one that is shown; None for all
        self._said, self._said_at = "", float("-inf")  # in the last line, for a while
        self._is_pause_sure = False
        self._records = _AboveDisplay(self._console)
        self.handler: logging.Handler = self._records
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
        self._history.add(time.monotonic(), state.metrics)
        if not self._live.is_started:
            self._live.start()

    def press(self, key: str) -> None:
        """Do what a key is for. Any thread may call it."""
        if key == "s":
            self._ask("save", "asked for a checkpoint")
        elif key == "p" and self._is_saying() and self._is_pause_sure:
            self._ask("pause", "asked for a pause: the run saves and exits")
        elif key == "p":
            self._say("press p again to save and exit", is_pause_sure=True)
        elif key == "l":
            self._is_log_hidden = not self._is_log_hidden
            self._records.hide(self._is_log_hidden)
            self._say("the log is hidden but for warnings" if self._is_log_hidden else "the log is shown")
        elif key == "m":
            names = [None, *self._state.metrics]
            place = names.index(self._metric) if self._metric in names else 0
            self._metric = names[(place + 1) % len(names)]

    def forget_keys(self) -> None:
        """Name the keys no more: they are not read."""
        self._rundir = None

    def _ask(self, what: Literal["save", "pause"], said: str) -> None:
        """Write a request file, as the command does."""
        if self._rundir is None:
            return
        try:
            request_files.append(self._rundir.save if what == "save" else self._rundir.pause, "")
        except StorageError as error:
            said = str(error)
        self._say(said)

    def _say(self, text: str, *, is_pause_sure: bool = False) -> None:
        self._said, self._said_at, self._is_pause_sure = text, time.monotonic(), is_pause_sure

    def _is_saying(self) -> bool:
        return time.monotonic() - self._said_at < _SURE_SECS

    def render(self) -> RenderableType:
        """Return the display of the present state."""
        state, now = self._state, time.monotonic()
        names = [self._metric] if self._metric in state.metrics else list(state.metrics)
        first = self._metric or ("loss" if "loss" in names else next(iter(names), ""))
        bars = "" if self._console.options.ascii_only else self._history.sparkline(first, now)
        keys = f"{self._said} · " if self._is_saying() else KEYS if self._rundir is not None else ""
        return render(state, time.time(), names, {first: bars}, keys)


def render(
    state: State,
    now: float,
    names: Sequence[str] | None = None,
    sparklines: Mapping[str, str] = MappingProxyType({}),
    keys: str = "",
) -> RenderableType:
    """Return one state as a table.

    Args:
      state: what is shown.
      now: seconds since 1970 (UTC), for the age of the last checkpoint.
      names: the metrics that are shown. Default: all.
      sparklines: what is shown behind a metric.
      keys: what is said of keys, before Ctrl-C.
    """
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    of = f" of {state.end:,}" if state.end else ""
    table.add_row(str(state.phase), UNMANAGED if state.phase is Phase.UNMANAGED else f"step {state.step:,}{of}")
    for name, value in state.shown_metrics().items():
        if names is None or name in names:
            bars = f"  {sparklines[name]}" if sparklines.get(name) else ""
            table.add_row(Text(printable(" ".join(name.split()))), value + bars)  # it may contain markup and newlines
    if not state.phase.is_over:
        rate = f"{state.steps_per_sec:,.0f} steps/s" if state.steps_per_sec else "–"
        eta = f", {seconds(state.eta_secs)} left" if state.eta_secs is not None else ""
        table.add_row("rate", rate + eta)
    if (saved := state.last_checkpoint) is not None:
        table.add_row("saved", f"step {saved.step:,}, {seconds(max(0.0, now - saved.at))} ago")
    else:
        table.add_row("saved", "not yet")
    table.add_row("memory used", size(state.memory_bytes))
    for device in state.devices:
        table.add_row("device", Text(str(device)))
    for worker in state.workers:
        table.add_row(f"worker {worker.rank}", worker.line(now))
    for warning in state.warnings:
        table.add_row("warning", Text(printable(warning), style="yellow"))
    if state.end and not state.phase.is_over:
        table.add_row("", ProgressBar(total=state.end, completed=state.step, width=60))
    if state.phase.is_over:
        return table
    ctrl_c = "Ctrl-C exits." if state.phase is Phase.UNMANAGED else f"{keys}Ctrl-C saves and exits."
    return Group(table, Text(ctrl_c, style="dim"))
