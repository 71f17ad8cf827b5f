"""trainerd: a daemon and a library that train a TensorFlow model for days or months.

Importing this package does not import TensorFlow. What is in it is imported when it is first asked for, so that a
command costs what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from trainerd.errors import TrainerdError

if TYPE_CHECKING:
    from trainerd import hooks as hooks
    from trainerd import keras as keras
    from trainerd.job import GraphJob, Job, KerasJob
    from trainerd.supervisor.creators import ChiefSessionCreator, WorkerSessionCreator
    from trainerd.supervisor.monitored import MonitoredSession, SingularMonitoredSession
    from trainerd.supervisor.monitoredtraining import MonitoredTrainingSession
    from trainerd.supervisor.supervisor import Supervisor

__version__ = "0.1.0"
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
    "GraphJob": "trainerd.job",
    "Job": "trainerd.job",
    "KerasJob": "trainerd.job",
    "ChiefSessionCreator": "trainerd.supervisor.creators",
    "MonitoredSession": "trainerd.supervisor.monitored",
    "MonitoredTrainingSession": "trainerd.supervisor.monitoredtraining",
    "SingularMonitoredSession": "trainerd.supervisor.monitored",
    "Supervisor": "trainerd.supervisor.supervisor",
    "WorkerSessionCreator": "trainerd.supervisor.creators",
}


def __getattr__(name: str) -> object:
    """Import what is first asked for."""
    if name in _LATER:
        module = importlib.import_module(_LATER[name])
        found: object = module if module.__name__ == f"trainerd.{name}" else getattr(module, name)
        return found
    raise AttributeError(f"module 'trainerd' has no attribute {name!r}")
