"""Random ops whose state no checkpoint can hold."""

from __future__ import annotations

from typing import Any

from trainerd.sessions import inexact

# TensorFlow's stateful random ops keep a counter in their kernel. Those of tf.random.Generator (StatefulUniform and
# the like) keep it in a variable, and the stateless ones have none.
_LOSE_THEIR_PLACE = {
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


def random_ops(graph: Any) -> list[str]:
    """The kinds of such ops in a graph and the functions that it calls, sorted."""
    definition = graph.as_graph_def()
    kinds = {node.op for node in definition.node}
    kinds |= {node.op for function in definition.library.function for node in function.node_def}
    return sorted(kinds & _LOSE_THEIR_PLACE)


def require_kept(graph: Any, *, refuse: bool) -> None:
    """Say that a step has random ops whose state is lost at a pause.

    Args:
      graph: that of the step.
      refuse: whether that is an error.

    Raises:
      EntryError: it has, and it is.
    """
    if not (lost := random_ops(graph)):
        return
    inexact.tell(
        f"the job's step uses {', '.join(lost)}, which keep their place in the random numbers where no checkpoint can "
        "reach: after a pause they begin anew. Use a tf.random.Generator that is in the job's state, "
        "tf.random.stateless_*, or Keras layers with their own seed generators.",
        refuse=refuse,
        event="random-ops",
    )
