"""Keras's `fit` as a run of trainerd: one call that is saved, paused, resumed and watched."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from trainerd.config import parse
from trainerd.config.schema import Config
from trainerd.errors import ConfigError
from trainerd.history.run_job import this_program
from trainerd.job.definition import KerasJob
from trainerd.job.source import source_of_program
from trainerd.loop.outcome import Paused
from trainerd.programs.keras.arguments import as_job
from trainerd.programs.keras.calls import Call, Calls, calls_in
from trainerd.programs.keras.script_host import host_of_call
from trainerd.run.here import train_here
from trainerd.run.host import Host, is_hosted, rundir_for
from trainerd.rundir import request_files
from trainerd.rundir.state import Phase
from trainerd.sessions.keras.bar import Bar
from trainerd.sessions.keras.call_data import CallData, describe_data
from trainerd.sessions.keras.job_session import KerasJobSession
from trainerd.system.absolute import absolute


def fit(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: int | str = "auto",
    callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] | None = None,
    validation_split: float = 0.0,
    validation_data: tf.data.Dataset | tuple[Any, ...] | None = None,
    shuffle: bool = True,
    class_weight: Mapping[int, float] | None = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | Collection[int] = 1,
    *,
    logdir: str | os.PathLike[str],
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> keras.callbacks.History:
    """Train a model as `model.fit` does, in a run directory.

    The same call of a new process resumes exactly where this one was paused or killed, in mid-epoch too. If its epochs
    are done it restores the model and returns.

    Further calls with the same run directory train on in the same run, with this model or with others. A new process
    passes over the calls that are complete, and returns the History of each. Calls are known by their names, or else by
    their order.

    Args:
      model: the model, compiled.
      x: the inputs as `fit` takes them: an array, a tensor, a pandas object, or a list, tuple or dict of these; or a
        `tf.data.Dataset`, a `keras.utils.PyDataset` or a generator of what the model's `train_step` takes.
      y: the targets. Leave them out if x yields batches.
      batch_size: examples of a batch of arrays. Default: 32.
      epochs: the number of the last epoch. A larger one than before continues.
      verbose: 0: nothing; 1: a bar; 2: a line for each epoch; "auto": a bar, and nothing under the daemon.
      callbacks: `keras.callbacks`; what they remember is saved too.
      validation_split: the part of x and y, from their end, to validate with.
      validation_data: a `tf.data.Dataset`, or (x, y) or (x, y, sample_weight).
      shuffle: whether arrays are shuffled again in each epoch.
      class_weight: the weight of each class in the loss.
      sample_weight: the weight of each example in the loss.
      initial_epoch: the number of the first epoch, from 0.
      steps_per_epoch: steps of an epoch. Default: the data once.
      validation_steps: batches that are evaluated. Default: all.
      validation_batch_size: examples of a batch of arrays that are evaluated. Default: `batch_size`.
      validation_freq: epochs from one validation to the next, or a list of the epochs that have one.
      logdir: the run directory.
      name: a name for this call, if the script makes several. Default: it is known by its place among them.
      settings: tables and keys as in a trainerd.toml, such as {"checkpoint": {"keep_best": 3}}.

    Returns:
      The `keras.callbacks.History` of all epochs, those before a pause or a kill too.

    Raises:
      Paused: the run was saved and is paused. If the program does not catch it, the process exits with 0. A pause after
        the call raises it too, where the program is then.
      EntryError: the model or an argument cannot be used.
      ConfigError: a setting is wrong.
      InUseError: another process trains in that run directory.
      DataError: it holds another run, or no checkpoint of it can be used.
      JobError: a step or a callback failed. What was sound is saved.
      StorageError: a checkpoint could not be written.
    """
    rundir = rundir_for(absolute(Path(logdir)))
    calls = calls_in(rundir, model)
    job, is_exact = as_job(
        model,
        x,
        y,
        batch_size=batch_size,
        validation_split=validation_split,
        validation_data=validation_data,
        class_weight=class_weight,
        sample_weight=sample_weight,
        epochs_before=calls.epochs,
        callbacks=callbacks or (),
        epochs=epochs,
        initial_epoch=initial_epoch,
        shuffle=shuffle,
        steps_per_epoch=steps_per_epoch,
        validation_steps=validation_steps,
        validation_batch_size=validation_batch_size,
        validation_freq=validation_freq,
    )
    config = parse.parse({**(settings or {}), "logdir": str(rundir), "entry": "fit:fit"})
    if config.devices is not None:
        raise ConfigError("settings: `devices` has no effect here. Make the model in the scope of a MirroredStrategy.")
    config = replace(config, entry=this_program(), accept_changes=calls.accepts_changes)
    host = host_of_call(calls.rundir, config.entry)
    counts = host.effective_config(config, on_schedule=True)
    is_compared = counts.input_position == "exact" and not counts.accept_changes
    data = CallData(calls.rundir, describe_data(job) if is_exact else {}, is_compared=is_compared)
    params = {"verbose": verbose, "epochs": epochs, "steps": steps_per_epoch}
    call = Call(model, job.callbacks, name, params)
    if (done := calls.begin(call, data)) is not None:
        return done
    if not is_exact:
        config = replace(config, input_position="restart")
    if verbose == "auto":
        verbose = 0 if is_hosted() else 1  # the daemon shows the run itself
    bar = Bar(int(verbose)) if verbose else None
    session = _train(job, config, host, bar, calls, name, data, is_exact=is_exact)
    return calls.end(call, session.call, session.histories, session.step)


def _train(
    job: KerasJob,
    config: Config,
    host: Host,
    bar: Bar | None,
    calls: Calls,
    name: str | None,
    data: CallData,
    *,
    is_exact: bool,
) -> KerasJobSession:
    """Train the job in its run directory. Returns its session.

    Args:
      job: what to train.
      config: the program's; under a daemon the daemon's counts.
      host: holds the run directory.
      bar: shows the epochs; None for nothing.
      calls: the calls before this one.
      name: the name of this call; None for none.
      data: the data of this call.
      is_exact: whether the position of the data can be saved.

    Raises:
      Paused: the run is paused.
    """
    made: list[KerasJobSession] = []

    def make(config: Config, **options: Any) -> KerasJobSession:
        if config.accept_changes:  # it is read, and holds for this start
            request_files.consume(calls.rundir.accept_changes)
        session = KerasJobSession(
            job,
            bar=bar,
            models=calls.models,
            call=calls.count,
            name=name,
            data=data,
            program=source_of_program(),
            follows=calls.step,
            epochs_before=calls.epochs,
            max_steps=config.max_steps,
            exact_input=is_exact and config.input_position == "exact",
            stop_on_nan=config.stop_on_nan,
            repeats=config.deterministic,
            **options,
        )
        made.append(session)
        return session

    outcome = train_here(make, config, [bar.observe] if bar is not None else [], host=host)
    if outcome.phase is Phase.PAUSED:
        raise Paused
    return made[0]
