"""From a config to a session that is ready to be restored or trained. Imports TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from trainerd.config import Config
from trainerd.job import Job
from trainerd.sessions.contract import Session
from trainerd.sessions.entry import load_job, source_of
from trainerd.sessions.function import FunctionSession

# TensorFlow looks for devices when it is first used, and remarks on those it does not find; better here than
# among the lines of the run.
tf.config.list_logical_devices()


def open_session(config: Config, wrap: Callable[[Job], Job] = lambda job: job) -> Session:
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
    job = wrap(load_job(config.entry, config.folder))
    exact = config.input_position == "exact"
    return FunctionSession(
        job,
        exact_input=exact,
        stop_on_nan=config.stop_on_nan,
        repeats=config.deterministic,
        source=source_of(config.entry),
    )
