"""A trial of a program: it runs up to its first driven run, whose session is taken, and trains nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from trainerd.config.schema import Config
from trainerd.errors import EntryError
from trainerd.job.params import require_asked
from trainerd.loop.contract import Session
from trainerd.run.host import ProcessHost
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.reporter import Observer


class TrialEnded(BaseException):
    """Ends a program when its session is made. No Exception: a program must not take it for an error."""


class Trial(ProcessHost):
    """Takes the session of the first driven run. No run directory is touched.

    Args:
      config: counts in place of the program's own.
      options: of the session.

    Attributes:
      taken: the session; None if the program has made none.
    """

    taken: Session | None = None

    def __init__(self, config: Config, options: Mapping[str, Any]) -> None:
        super().__init__(config.entry)
        self._config = config
        self._options = options

    def owns(self, rundir: RunDirectory) -> bool:
        """Return True, for any."""
        return True

    def session(self, rundir: RunDirectory | None, observers: Sequence[Observer], *, saves: bool) -> NoReturn:
        """Refuse a loop of the program's own.

        Raises:
          EntryError: always.
        """
        raise EntryError(
            f"entry = {self._config.entry!r}: the program writes its own loop. What it does is only known when it "
            "runs, so it cannot be tried. Try it with a short `max_steps` and another `logdir`."
        )

    def take(self, make: Callable[..., Session]) -> NoReturn:
        """Make the session, and end the program.

        Args:
          make: makes it of a config and options.

        Raises:
          EntryError: a script has not asked for its parameters.
          TrialEnded: otherwise.
        """
        require_asked()
        self.taken = make(self._config, **self._options)
        raise TrialEnded
