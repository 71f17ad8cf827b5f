"""From a config to a session that is ready to be restored or trained. Imports TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from trainerd.config import Config
from trainerd.sessions.contract import Session
from trainerd.sessions.entry import load_job
from trainerd.sessions.function import FunctionSession

# TensorFlow looks for devices when it is first used, and remarks on those it does not find; better here than
# among the lines of the run.
tf.config.list_logical_devices()


def open_session(config: Config) -> Session:
    """Build the job that the config names, and a session for it.

    Raises:
      EntryError: the job cannot be had, or cannot be trained.
    """
    job = load_job(config.entry, config.folder)
    exact = config.input_position == "exact"
    return FunctionSession(job, exact_input=exact, stop_on_nan=config.stop_on_nan)
