"""trainerd: a daemon and a library that train a TensorFlow model for days or months.

Importing this package does not import TensorFlow.
"""

from trainerd.errors import TrainerdError
from trainerd.job import Job

__version__ = "0.1.0"
__all__ = ["Job", "Supervisor", "TrainerdError", "__version__"]


def __getattr__(name: str) -> object:
    """Import the Supervisor when it is first asked for: its room is not needed to describe a job."""
    if name == "Supervisor":
        from trainerd.supervisor.supervisor import Supervisor

        return Supervisor
    raise AttributeError(f"module 'trainerd' has no attribute {name!r}")
