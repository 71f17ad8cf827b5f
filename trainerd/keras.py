"""The public names for programs that keep Keras's `model.fit`.

For a Keras model under the daemon's own loop there is `trainerd.KerasJob`.
"""

from __future__ import annotations

from trainerd.loop.outcome import Paused
from trainerd.sessions.keras.supervise import Supervise

__all__ = ["Paused", "Supervise"]
