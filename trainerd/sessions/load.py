"""From a config to a session that is ready to be restored or trained. Imports TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainerd.config.schema import Config
from trainerd.errors import EntryError
from trainerd.job.definition import GraphJob, Job, KerasJob, Program
from trainerd.job.entry import load_job, source_of
from trainerd.loop.contract import Session
from trainerd.sessions.tf1.job_session import GraphJobSession
from trainerd.sessions.tf2.job_session import FunctionSession

AnyJob = Job | GraphJob | KerasJob

# TensorFlow looks for devices when it is first used, and remarks on those it does not find; better here than
# among the lines of the run.
tf.config.list_logical_devices()


def open_entry(config: Config) -> Session | Program:
    """Build the job that the config names, and a session for it; or find the function that writes its own loop.

    Args:
      config: what to build.

    Raises:
      EntryError: the job cannot be had, or cannot be trained.
    """
    job = _load(config)
    return job if isinstance(job, Program) else _session_of(job, config)


def open_session(config: Config, wrap: Callable[[Job], Job] = lambda job: job) -> Session:
    """Build the job that the config names, and a session for it, to try it.

    Callbacks of a Keras model that write files are left out, since those files belong to the run.

    Args:
      config: what to build.
      wrap: maps the job to the one that the session trains; a GraphJob is not mapped.

    Raises:
      EntryError: the job cannot be had, or cannot be trained; or it is a function that writes its own loop.
    """
    job = _load(config)
    if isinstance(job, Program):
        raise EntryError(
            f"entry = {config.entry!r} is a function that takes the Supervisor: what it does is only known when it "
            "runs, so it cannot be tried. Try it with a short `max_steps` and another `logdir`."
        )
    return _session_of(job, config, wrap, writes=False)


def _load(config: Config) -> AnyJob | Program:
    if config.seed is not None:
        tf.keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    return load_job(config.entry, config.folder)


def _session_of(
    job: AnyJob, config: Config, wrap: Callable[[Job], Job] = lambda job: job, *, writes: bool = True
) -> Session:
    source = source_of(config.entry)
    if isinstance(job, GraphJob):
        return GraphJobSession(job, stop_on_nan=config.stop_on_nan, repeats=config.deterministic, source=source)
    options: dict[str, Any] = {
        "exact_input": config.input_position == "exact",
        "stop_on_nan": config.stop_on_nan,
        "repeats": config.deterministic,
        "source": source,
    }
    if isinstance(job, KerasJob):
        from trainerd.sessions.keras.job_session import KerasJobSession  # Keras is imported where it is used

        return KerasJobSession(job, wrap=wrap, writes=writes, **options)
    return FunctionSession(wrap(job), **options)
