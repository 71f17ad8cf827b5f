"""Random ops, and calls of Python, whose state no checkpoint can hold."""

from __future__ import annotations

import logging
from typing import Any

from trainerd.checkpoints.contents import inexact_ops
from trainerd.checkpoints.contents.op_kinds import kinds_in_steps, kinds_of

log = logging.getLogger(__name__)

# TensorFlow's stateful random ops keep a counter in their kernel. Those of tf.random.Generator (StatefulUniform and
# the like) keep it in a variable, and the stateless ones have none.
LOSE_THEIR_PLACE = {
    "AllCandidateSampler",
    "FixedUnigramCandidateSampler",
    "LearnedUnigramCandidateSampler",
    "LogUniformCandidateSampler",
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "RandomCrop",
    "RandomGamma",
    "RandomPoisson",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "ThreadUnsafeUnigramCandidateSampler",
    "TruncatedNormal",
    "UniformCandidateSampler",
}
_PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}


def random_ops(graph: Any) -> list[str]:
    """The kinds of such ops in a graph and the functions that it calls, sorted."""
    return sorted(kinds_in_steps(graph) & LOSE_THEIR_PLACE)


def calls_python(graph: Any) -> bool:
    """Whether a graph calls Python, which may never return."""
    return bool(kinds_of(graph) & _PYTHON)


def require_kept(graph: Any, *, refuse: bool) -> None:
    """Warn that a step has random ops whose state is lost at a pause, and that it calls Python.

    Args:
      graph: that of the step.
      refuse: whether that is an error.

    Raises:
      EntryError: it has, and it is.
    """
    kinds = kinds_in_steps(graph)
    if kinds & _PYTHON:
        log.warning(
            "the step calls Python (tf.py_function, tf.numpy_function): what that keeps, such as an environment or "
            "NumPy's random numbers, is in no checkpoint, and after a pause it begins anew. Keep it in variables.",
            extra={"event": "python"},
        )
    if not (lost := sorted(kinds & LOSE_THEIR_PLACE)):
        return
    inexact_ops.tell(
        f"the job's step uses {', '.join(lost)}, which keep their place in the random numbers where no checkpoint can "
        "reach: after a pause they begin anew. Use a tf.random.Generator that is in the job's state, "
        "tf.random.stateless_*, or Keras layers with their own seed generators.",
        refuse=refuse,
        event="random-ops",
    )
