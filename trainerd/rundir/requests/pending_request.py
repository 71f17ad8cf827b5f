"""A request to a process that trains, and its answer: a file in the run directory, and state.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainerd.errors import NotRunningError
from trainerd.rundir.lock import Holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Answer, Phase, State, read_state
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage

_AGAIN_SECS = 5.0
_SERVED = (Phase.SAVING, Phase.PAUSING, Phase.RESTORING)  # what a request has the process do


class PendingRequest:
    """A request that a process has not answered yet.

    Args:
      rundir: the run directory, whose state has the answer.
      holder: the process that trains there.
      id: the id of the request, which is in the file; empty for a pause, whose answer is the end of the process.
      write: writes the file.
      path: the file.
      done: what the process has done then, for a message.

    Attributes:
      holder, id: see above.
    """

    def __init__(
        self, rundir: RunDirectory, holder: Holder, id: str, write: Callable[[], None], path: Path, done: str
    ) -> None:
        self.holder, self.id = holder, id
        self._rundir, self._write, self._path, self._done = rundir, write, path, done
        self._gone_for = 0.0

    def send(self) -> None:
        """Write the file.

        Raises:
          StorageError: it cannot be written.
        """
        self._write()

    def look(self, secs: float) -> Answer | None:
        """Return the answer; None if there is none yet. Write the file again if the process cannot have read it.

        Args:
          secs: the seconds since the last look.

        Raises:
          NotRunningError: the process ended before it answered.
          StorageError: the state or the file cannot be read, or the file not be written.
        """
        alive = self.holder.is_alive()
        state = read_state(self._rundir.state)
        if state is not None and (answer := self._answer_in(state)) is not None:
            return answer
        if not alive:
            pid = self.holder.pid
            raise NotRunningError(f"process {pid} ended before it {self._done}. `trainerd status` says why.")
        # The trainer could not read the file, or it started and removed what was asked of an earlier process. It
        # serves an id once, so a request that it has taken does not happen twice.
        is_served = state is not None and state.phase in _SERVED
        with storage(f"read {self._path}"):
            is_there = safe_paths.exists(self._path)
        self._gone_for = 0.0 if is_served or is_there else self._gone_for + secs
        if self._gone_for > _AGAIN_SECS:
            self._gone_for = 0.0
            self._write()
        return None

    def _answer_in(self, state: State) -> Answer | None:
        """Return the answer that a state has; that to a pause is the last state of the process."""
        if self.id:
            return state.answer_to(self.id)
        if state.pid != self.holder.pid or not state.phase.is_over:
            return None
        is_saved = state.phase is not Phase.FAILED
        return Answer([], state.step if is_saved else None, None if is_saved else state.error)
