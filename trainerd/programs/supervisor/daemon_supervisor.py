"""The Supervisor for a function under the daemon."""

from __future__ import annotations

from typing import Any

from trainerd.config.schema import Config
from trainerd.programs.supervisor.supervisor import Supervisor
from trainerd.run.host import Host

_OF_THE_CONFIG = (
    "logdir",
    "save_model_secs",
    "save_summaries_secs",
    "metrics_secs",
    "metrics_steps",
    "is_chief",
    "host",
)


class DaemonSupervisor(Supervisor):
    """A Supervisor of the run that the daemon trains.

    The function gets it before anything is built. So the Supervisor is made when it is first used, from the arguments
    of `configure`, or from the default graph.

    Args:
      config: the daemon's.
      host: the daemon.
    """

    def __init__(self, config: Config, host: Host) -> None:
        self._arguments: dict[str, Any] = {
            "logdir": str(config.rundir),
            "save_model_secs": config.checkpoint.save_model_secs,
            "save_summaries_secs": config.summary.save_summaries_secs,
            "host": host,
        }
        self._is_made = False

    def configure(self, **arguments: Any) -> None:
        """Set what is trained: any argument of `Supervisor`, except those that trainerd.toml has.

        Raises:
          ValueError: trainerd.toml has it; or it is too late.
        """
        if taken := [name for name in arguments if name in _OF_THE_CONFIG]:
            raise ValueError(f"{', '.join(taken)}: under the daemon trainerd.toml says that.")
        if self._is_made:
            raise ValueError("configure comes before anything else is asked of the supervisor.")
        self._arguments |= arguments

    def __getattr__(self, name: str) -> Any:
        """Make the Supervisor: called for missing attributes, which are all of them at first."""
        if self.__dict__.get("_is_made", True):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._is_made = True
        try:
            super().__init__(**self._arguments)
        except BaseException:
            self._is_made = False
            raise
        return getattr(self, name)
