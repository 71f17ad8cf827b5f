"""trainerd: a daemon and a library that train a TensorFlow model for days or months.

Importing this package does not import TensorFlow. What is in it is imported when it is first asked for, so that a
command costs what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from trainerd.errors import TrainerdError
from trainerd.version import __version__

if TYPE_CHECKING:
    from trainerd import hooks as hooks
    from trainerd import keras as keras
    from trainerd.job.definition import GraphJob, Job, KerasJob
    from trainerd.monitored.graph_session import MonitoredSession
    from trainerd.monitored.session_creators import ChiefSessionCreator, WorkerSessionCreator
    from trainerd.monitored.singular_session import SingularMonitoredSession
    from trainerd.monitored.training_session import MonitoredTrainingSession
    from trainerd.supervisor.supervisor import Supervisor

__all__ = [
    "ChiefSessionCreator",
    "GraphJob",
    "Job",
    "KerasJob",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "SingularMonitoredSession",
    "Supervisor",
    "TrainerdError",
    "WorkerSessionCreator",
    "__version__",
]

_LATER = {
    "hooks": "trainerd.hooks",
    "keras": "trainerd.keras",
    "GraphJob": "trainerd.job.definition",
    "Job": "trainerd.job.definition",
    "KerasJob": "trainerd.job.definition",
    "ChiefSessionCreator": "trainerd.monitored.session_creators",
    "MonitoredSession": "trainerd.monitored.graph_session",
    "MonitoredTrainingSession": "trainerd.monitored.training_session",
    "SingularMonitoredSession": "trainerd.monitored.singular_session",
    "Supervisor": "trainerd.supervisor.supervisor",
    "WorkerSessionCreator": "trainerd.monitored.session_creators",
}


def __getattr__(name: str) -> object:
    """Import what is first asked for."""
    if name in _LATER:
        module = importlib.import_module(_LATER[name])
        found: object = module if module.__name__ == f"trainerd.{name}" else getattr(module, name)
        return found
    raise AttributeError(f"module 'trainerd' has no attribute {name!r}")
