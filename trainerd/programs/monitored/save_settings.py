"""The settings of a MonitoredTrainingSession: what it saves and writes, in which folder, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tensorflow as tf

from trainerd.loop.schedule import Schedule
from trainerd.programs.hooks.checkpoint_saver import CheckpointSaverHook
from trainerd.programs.monitored.lifecycle import SavingListeners
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf1 import defaults
from trainerd.sessions.tf1.run import GraphRun

tf1 = tf.compat.v1


@dataclass
class SaveSettings:
    """The settings with which a session of a graph saves. 0: never.

    Attributes:
      rundir: the run directory.
      summary_dir: where event files go.
      save_secs, save_steps: between checkpoints.
      count_steps: between two points of the curve of the rate.
      shows: whether there are summaries.
      writes_graph: whether `graph.pbtxt` is written, and the graph with each checkpoint.
      loss: a tensor with one number, whose minima are kept; None for none.
      listeners: called for each checkpoint.
    """

    rundir: RunDirectory
    summary_dir: str
    save_secs: float
    save_steps: int
    count_steps: int
    shows: bool
    writes_graph: bool
    loss: Any
    listeners: SavingListeners

    @cached_property
    def writer(self) -> Any:
        """The FileWriter that the hooks of the program share."""
        return tf1.summary.FileWriterCache.get(self.summary_dir)

    def require_global_step(self) -> Any:
        """Return the global step of the default graph.

        Raises:
          RuntimeError: there is none.
          TypeError: it is not a single integer.
        """
        found = defaults.global_step()
        if found is None:
            tf1.train.get_global_step()  # raises what is wrong with one that is there and cannot count
            first = "SummarySaverHook" if self.shows else "CheckpointSaverHook"
            first = "StepCounterHook" if self.count_steps > 0 else first
            raise RuntimeError(f"Global step should be created to use {first}.")
        return found

    def on_saving(self, step: int) -> None:
        """Log in TensorFlow's words that a checkpoint is begun."""
        self.listeners.saving(step)
        tf1.logging.info("Calling checkpoint listeners before saving checkpoint %d...", step)
        tf1.logging.info("Saving checkpoints for %d into %s.", step, self.rundir.save_path)

    def on_saved(self, step: int) -> None:
        """Log that the checkpoint is there."""
        tf1.logging.info("Calling checkpoint listeners after saving checkpoint %d...", step)

    def start(self, attached: GraphRun, graph: Any) -> None:
        """Save and write on schedule from now on."""
        if self.writes_graph:
            tf.io.write_graph(graph.as_graph_def(add_shapes=True), str(self.rundir.path), "graph.pbtxt")
        self.writer.add_graph(graph)
        if attached.model is not None:
            attached.model.state.write_meta_graph(self.writes_graph)
            self.writer.add_meta_graph(attached.model.state.meta_graph)
        attached.start_services(self.save_secs, self.save_steps)
        if self.count_steps > 0:
            schedule = Schedule(steps=self.count_steps, since_last=True)
            attached.add_service("steps", attached.count_steps, schedule, at_next_step=True)


@dataclass(frozen=True)
class StepSaveSettings:
    """The settings with which a session of functions saves. 0: never.

    Attributes:
      rundir: where checkpoints and curves go; None for nowhere.
      save_secs, save_steps: between checkpoints.
      show_secs, show_steps: between points of the metrics' curves.
      count_steps: between two points of the curve of the rate.
      listeners: called for each checkpoint.
      loss: the metric whose minima are kept; "" for none.
    """

    rundir: RunDirectory | None
    save_secs: float
    save_steps: int
    show_secs: float
    show_steps: int
    count_steps: int
    listeners: tuple[Any, ...]
    loss: str = ""


def with_hook_that_saves(hooks: list[Any], settings: StepSaveSettings) -> StepSaveSettings:
    """Return these settings, or those of the hook that saves if there is one.

    Raises:
      ValueError: two hooks save, or a hook and the session save in different folders.
    """
    found = [hook for hook in hooks if isinstance(hook, CheckpointSaverHook)]
    if not found:
        return settings
    hook = found[0]
    rundir = RunDirectory.of(hook.checkpoint_dir, hook.checkpoint_basename)
    own = settings.rundir.path if settings.rundir is not None and (settings.save_secs or settings.save_steps) else None
    if len(found) > 1 or own not in (None, rundir.path):
        raise ValueError(
            "A session saves into one run directory: give one CheckpointSaverHook, and with it "
            "save_checkpoint_secs=None, or the same folder as checkpoint_dir."
        )
    listeners = (*settings.listeners, *hook.listeners)
    return replace(settings, rundir=rundir, save_secs=hook.save_secs, save_steps=hook.save_steps, listeners=listeners)
