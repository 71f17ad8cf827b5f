"""Hooks for the steps of TensorFlow 2 functions: those of `tf.compat.v1.train`, by the same names and arguments.

For a graph TensorFlow's own are taken as they are. A function has no tensors that one could fetch, so these name what
it returns: `LoggingTensorHook(["loss"], every_n_iter=100)`. In place of a name there may be a variable, which is read
after the step, or a function without arguments, which is called then.

A hook that is called every so many steps, or seconds, leaves the loop in the graph between: it says when with `due_at`.
One of a program's own that has no `due_at` is called around every step.
"""

from __future__ import annotations

import tensorflow as tf

from trainerd.programs.hooks.before_step import FeedFnHook, GlobalStepWaiterHook
from trainerd.programs.hooks.checkpoint_saver import CheckpointSaverHook
from trainerd.programs.hooks.logging_tensor import LoggingTensorHook
from trainerd.programs.hooks.stopping import FinalOpsHook, NanTensorHook, StopAtStepHook
from trainerd.programs.hooks.summaries import ProfilerHook, StepCounterHook, SummarySaverHook

tf1 = tf.compat.v1

SessionRunHook = tf1.train.SessionRunHook
SessionRunArgs = tf1.train.SessionRunArgs
SessionRunContext = tf1.train.SessionRunContext
SessionRunValues = tf1.train.SessionRunValues
CheckpointSaverListener = tf1.train.CheckpointSaverListener
NanLossDuringTrainingError = tf1.train.NanLossDuringTrainingError

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
]
