"""From a config to a session that is ready to be restored or trained. Imports TensorFlow."""

from __future__ import annotations

from trainerd.config import Config
from trainerd.sessions.contract import Session
from trainerd.sessions.entry import load_job


def open_session(config: Config) -> Session:
    """Build the job that the config names, and a session for it.

    Raises:
      EntryError: the job cannot be had, or cannot be trained.
    """
    job = load_job(config.entry, config.folder)
    from trainerd.sessions.function import FunctionSession

    return FunctionSession(
        job, exact_input=config.input_position == "exact", stop_on_nan=config.stop_on_nan
    )
