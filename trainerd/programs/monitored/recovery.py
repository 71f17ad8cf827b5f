"""The errors of a preemption, and the messages that a MonitoredSession logs when it recovers from one."""

from __future__ import annotations

import tensorflow as tf

PREEMPTION = (tf.errors.AbortedError, tf.errors.UnavailableError)


# TensorFlow's own words, which people look for in their logs.
_ADVICE = (
    "This error may also occur due to a gRPC failure caused by high memory or network bandwidth usage in the parameter "
    "servers. If this error occurs repeatedly, try increasing the number of parameter servers assigned to the job. "
    "Error: %s"
)


_PREEMPTED = (
    "This may be due to a preemption in a connected worker or parameter server. The current session will be closed and "
    f"a new session will be created. {_ADVICE}"
)


RUNNING = f"An error was raised. {_PREEMPTED}"


CONSIDERING = f"An error was raised while considering whether the session is complete. {_PREEMPTED}"


CREATING = (
    "An error was raised while a session was being created. This may be due to a preemption of a connected worker or "
    f"parameter server. A new session will be created. {_ADVICE}"
)


CLOSING = (
    "An error occurred when attempting to close the session. This may be due to a preemption in a connected worker or "
    "parameter server. Error: %s"
)
