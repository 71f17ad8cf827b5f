"""The blueprint of an Estimator's graphs: the model, its parameters and its settings."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainerd.programs.estimator.graph.warm_start import WarmStartSettings
from trainerd.programs.estimator.input_fn import call_input_fn, features_and_labels
from trainerd.programs.estimator.model_fn import EstimatorSpec, ModeKeys, call_model_fn
from trainerd.programs.estimator.run_config import RunConfig

tf1 = tf.compat.v1


@dataclass(frozen=True)
class Blueprint:
    """Builds the model in the default graph, for one mode.

    Attributes:
      model_fn: the user's function.
      params: its hyperparameters.
      config: the settings of the run.
      warm_start: what a new model begins with; None for nothing.
    """

    model_fn: Callable[..., Any]
    params: Any
    config: RunConfig
    warm_start: WarmStartSettings | None

    def begin_graph(self) -> Any:
        """Seed the default graph, and make its global step."""
        tf1.set_random_seed(self.config.tf_random_seed)
        return tf1.train.create_global_step()

    def build(self, input_fn: Callable[..., Any], mode: str) -> EstimatorSpec:
        """Build the input and the model. In PREDICT mode, labels are left out."""
        features, labels = features_and_labels(call_input_fn(input_fn, mode, copy.deepcopy(self.params), self.config))
        return self.build_on(features, None if mode == ModeKeys.PREDICT else labels, mode)

    def build_on(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        """Build the model on these features."""
        return call_model_fn(self.model_fn, features, labels, mode, copy.deepcopy(self.params), self.config)

    def start_warm(self, has_checkpoint: bool) -> None:
        """Have a new model start with values that another one has learned."""
        if self.warm_start is not None and not has_checkpoint:
            tf1.logging.info("Warm-starting with WarmStartSettings: %s", self.warm_start)
            tf1.train.warm_start(*self.warm_start)


def with_default_initializers(scaffold: Any) -> Any:
    """Return a scaffold whose own local_init_op does not keep tables, iterators and metrics from being initialized.

    Called when all of them are made.
    """
    if scaffold.local_init_op is None:
        return scaffold
    both = tf.group(scaffold.local_init_op, tf1.train.Scaffold.default_local_init_op())
    return tf1.train.Scaffold(local_init_op=both, copy_from_scaffold=scaffold)
