"""The session that most programs use: with hooks, and with checkpoints and summaries on a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import tensorflow as tf

from trainerd.programs.monitored.graph_session import MonitoredSession
from trainerd.programs.monitored.lifecycle import SavingListeners
from trainerd.programs.monitored.save_settings import SaveSettings, StepSaveSettings
from trainerd.programs.monitored.session_creators import ChiefSessionCreator, WorkerSessionCreator
from trainerd.programs.monitored.step_session import MonitoredStepSession
from trainerd.rundir.paths import RunDirectory
from trainerd.sessions.tf2.run import StepRun

tf1 = tf.compat.v1

USE_DEFAULT = object()


def MonitoredTrainingSession(
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | None = None,
    scaffold: tf.compat.v1.train.Scaffold | None = None,
    hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
    chief_only_hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
    save_checkpoint_secs: Any = USE_DEFAULT,
    save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT,
    config: tf.compat.v1.ConfigProto | None = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: Any = USE_DEFAULT,
    summary_dir: str | None = None,
    save_graph_def: bool = True,
    checkpoint: tf.train.Checkpoint | None = None,
    global_step: tf.Variable | tf.Tensor | None = None,
    loss: tf.Tensor | None = None,
    saving_listeners: Iterable[tf.compat.v1.train.CheckpointSaverListener] = (),
) -> Any:
    """Return a MonitoredSession that saves checkpoints and summaries, if it has a `checkpoint_dir`.

    As `tf.compat.v1.train.MonitoredTrainingSession`; checkpoints are those of `trainerd.Supervisor`, and a pause is
    asked for in the same ways.

    Args:
      master: the TensorFlow master.
      is_chief: whether this process initializes, saves and writes summaries.
      checkpoint_dir: where checkpoints go. None: none are made.
      scaffold: the ops. Default: a new Scaffold.
      hooks: called at each run.
      chief_only_hooks: those of the chief; called before the others.
      save_checkpoint_secs, save_checkpoint_steps: between checkpoints. Default: 600 seconds. None: not by this.
      save_summaries_steps, save_summaries_secs: between summaries. Default: 100 steps. None: not by this.
      config: a ConfigProto for the session.
      stop_grace_period_secs: seconds that threads have to stop.
      log_step_count_steps: steps between two points of the curve of the rate.
      max_wait_secs: seconds for which a worker waits for the chief.
      summary_dir: where summaries go. Default: `checkpoint_dir`.
      save_graph_def: whether `graph.pbtxt` is written.
      checkpoint: a `tf.train.Checkpoint` of what is trained: then there is no graph, the session runs TensorFlow 2
        functions, and `hooks` are those of `trainerd.hooks`, or a program's own.
      global_step: an int64 variable that those functions count themselves. None: each run counts.
      loss: the state at its minima is kept: a tensor of the graph with one number, which is fetched with each run; with
        `checkpoint` the name of what the functions return.
      saving_listeners: `tf.compat.v1.train.CheckpointSaverListener`s. `before_save` is called before the state is
        taken, `after_save` when the checkpoint is on disk, before the next step.

    Returns:
      A MonitoredSession; a MonitoredStepSession with `checkpoint`.

    Raises:
      ValueError: with `checkpoint`, an argument is given that only a graph has a use for.
      RuntimeError: an argument needs a global step, and the graph has none.
    """
    save_secs, save_steps = _chosen(save_checkpoint_secs, save_checkpoint_steps, 600, None)
    show_steps, show_secs = _chosen(save_summaries_steps, save_summaries_secs, 100, None)
    folder, count_steps = summary_dir or checkpoint_dir, max(log_step_count_steps or 0, 0)
    for where, *pair in ((checkpoint_dir, save_secs, save_steps), (folder, show_secs, show_steps)):
        wants = any(value is not None and value > 0 for value in pair)
        if is_chief and where and wants and None not in pair:
            raise ValueError("Can not provide both every_secs and every_steps.")
    if checkpoint is not None:
        others = {"master": master or None, "scaffold": scaffold, "config": config, "summary_dir": summary_dir}
        make_run = partial(StepRun, checkpoint=checkpoint, is_chief=is_chief, global_step=global_step, others=others)
        each, every, shows_each, shows_every = (max(n or 0, 0) for n in (save_secs, save_steps, show_secs, show_steps))
        rundir, listeners = RunDirectory.of(checkpoint_dir) if checkpoint_dir else None, tuple(saving_listeners)
        kept = StepSaveSettings(rundir, each, every, shows_each, shows_every, count_steps, listeners, loss or "")
        return MonitoredStepSession(make_run, [*(chief_only_hooks or []), *(hooks or [])], kept, stop_grace_period_secs)
    scaffold = scaffold or tf1.train.Scaffold()
    if not is_chief:
        worker = WorkerSessionCreator(scaffold, master, config, max_wait_secs)
        return MonitoredSession(worker, hooks, stop_grace_period_secs)
    creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    shows = bool(folder and ((show_secs or 0) > 0 or (show_steps or 0) > 0))
    settings, saves = None, bool(checkpoint_dir and ((save_secs or 0) > 0 or (save_steps or 0) > 0))
    if checkpoint_dir and saves:
        settings = SaveSettings(
            rundir=RunDirectory.of(checkpoint_dir),
            summary_dir=str(folder or checkpoint_dir),
            save_secs=save_secs or 0,
            save_steps=save_steps or 0,
            count_steps=count_steps if folder else 0,
            shows=shows,
            writes_graph=save_graph_def,
            loss=loss,
            listeners=SavingListeners(tuple(saving_listeners)),
        )
        tf1.logging.info("Create CheckpointSaverHook.")
    all_hooks = list(chief_only_hooks or [])
    if folder and count_steps and not saves:  # nothing is saved: another process may train there
        all_hooks.append(tf1.train.StepCounterHook(output_dir=folder, every_n_steps=count_steps))
    if shows:
        # In the run of a step, and not in one of its own: a summary may need what is fed, or the batch.
        all_hooks.append(tf1.train.SummarySaverHook(show_steps, show_secs, output_dir=folder, scaffold=scaffold))
    all_hooks += hooks or []
    return MonitoredSession(creator, all_hooks, stop_grace_period_secs, settings=settings)


def _chosen(one: Any, other: Any, default_of_one: Any, default_of_other: Any) -> tuple[Any, Any]:
    """Choose between two ways to say how often: if only one is given, the other is off."""
    if one is USE_DEFAULT and other is USE_DEFAULT:
        return default_of_one, default_of_other
    return (None if one is USE_DEFAULT else one), (None if other is USE_DEFAULT else other)
