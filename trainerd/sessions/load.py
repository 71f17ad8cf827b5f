"""From a config to a session that is ready to be restored or trained. Imports TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from trainerd.config import Config
from trainerd.errors import EntryError
from trainerd.job import GraphJob, Job
from trainerd.sessions.contract import Session
from trainerd.sessions.entry import load_job, source_of
from trainerd.sessions.function import FunctionSession
from trainerd.sessions.graphjob import GraphJobSession

# TensorFlow looks for devices when it is first used, and remarks on those it does not find; better here than
# among the lines of the run.
tf.config.list_logical_devices()


def open_session(config: Config, wrap: Callable[[Job], Job] | None = None) -> Session:
    """Build the job that the config names, and a session for it.

    Args:
      config: what to build.
      wrap: what the session trains in place of the job.

    Raises:
      EntryError: the job cannot be had, or cannot be trained.
    """
    if config.seed is not None:
        tf.keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    job = load_job(config.entry, config.folder)
    source = source_of(config.entry)
    if isinstance(job, GraphJob):
        if wrap is not None:
            raise EntryError("`trainerd prove` takes a trainerd.Job, and this is a GraphJob.")
        return GraphJobSession(job, stop_on_nan=config.stop_on_nan, repeats=config.deterministic, source=source)
    return FunctionSession(
        wrap(job) if wrap is not None else job,
        exact_input=config.input_position == "exact",
        stop_on_nan=config.stop_on_nan,
        repeats=config.deterministic,
        source=source,
    )
