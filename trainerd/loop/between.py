"""Requests that come between two calls of `fit`: everything is on disk, so none has to wait."""

from __future__ import annotations

from trainerd.loop.flag import Flag, Request
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.requests.answers import Answers


def serve_between(rundir: RunDirectory, flag: Flag, reporter: Reporter) -> bool:
    """Answer the commands that wait for a save. Return whether a pause is requested, which ends the program.

    Args:
      rundir: the run directory.
      flag: what signals raise.
      reporter: shows the answers.
    """
    if (saved := reporter.state.last_checkpoint) is not None and request_files.is_save_asked(rundir):
        Answers(reporter).give(request_files.consume_save(rundir), saved.step, None)
    if (by := request_files.who_asks_for_pause(rundir)) is not None:
        flag.raise_for(Request.PAUSE, by)
    return flag.wants(Request.PAUSE)
