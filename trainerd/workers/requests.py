"""The requests to a worker that is not the chief, and their way to the chief."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from trainerd.errors import TrainerdError
from trainerd.history.rollback import RollbackRequest
from trainerd.loop.flag import Flag, Request
from trainerd.loop.ticker import Ticker
from trainerd.rundir import request_files
from trainerd.rundir.paths import RunDirectory
from trainerd.workers.peer import Message, Peer

log = logging.getLogger(__name__)

_LOOK_SECS = 0.5
_ASKED_TO = {Request.SET: "set a number", Request.ROLLBACK: "roll back"}


def take_over(rank: int, what: str, message: Message, rundir: RunDirectory, flag: Flag) -> None:
    """Take over a request to another worker. Called on the chief.

    Args:
      rank: that worker's.
      what: the request.
      message: with the content of the request file, if there was one.
      rundir: the chief's.
      flag: the chief's.
    """
    request = Request(what)
    try:
        if (content := str(message.get("content") or "")[: request_files.LIMIT]) and request in _files(rundir):
            _write(request, content, rundir)
    except (TrainerdError, ValueError) as error:  # of a command that waits, and asks again
        log.error("the request of worker %d was not passed on: %s", rank, error, extra={"event": "asked"})
    log.info("worker %d was asked to %s", rank, _ASKED_TO.get(request, what), extra={"event": "asked"})
    flag.raise_for(request, f"worker {rank}")


def _write(request: Request, content: str, rundir: RunDirectory) -> None:
    if request is Request.ROLLBACK:
        RollbackRequest.parse(content.encode()).write(rundir)
    else:
        request_files.append(_files(rundir)[request], content)


def _files(rundir: RunDirectory) -> dict[Request, Path]:
    """Return the request files whose content is passed on."""
    return {Request.SAVE: rundir.save, Request.SET: rundir.set_request, Request.ROLLBACK: rundir.rollback}


def pass_on(chief: Peer, rundir: RunDirectory, flag: Flag) -> None:
    """Pass each request to this worker to the chief from now on, on a thread of its own. Called on another worker.

    Args:
      chief: the connection to the chief.
      rundir: this worker's, in which its request files are.
      flag: this worker's, which signals raise.
    """
    files = _files(rundir)

    def run() -> None:
        with Ticker(flag, rundir).running():
            while not chief.is_gone:
                if not flag.wait_for(list(Request), _LOOK_SECS):
                    continue
                for request in flag.take() - {Request.TICK}:
                    if request is Request.PAUSE:
                        request_files.consume_pause(rundir)
                    path = files.get(request)
                    lines = request_files.consume_lines(path) if path is not None else []
                    content = "".join(f"{line}\n" for line in lines)
                    chief.try_send(request.value, content=content)

    threading.Thread(target=run, name="trainerd-requests", daemon=True).start()
