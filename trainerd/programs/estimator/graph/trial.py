"""The training of an Estimator as a job, for `trainerd check`, `prove` and `evaluate`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.job.definition import GraphJob
from trainerd.programs.estimator.evaluation.graph import GLOBAL_STEP, EvaluationGraphs
from trainerd.programs.estimator.graph.blueprint import Blueprint
from trainerd.programs.estimator.graph.training import add_loss_summary
from trainerd.programs.estimator.model_fn import ModeKeys

tf1 = tf.compat.v1


def graph_job(
    blueprint: Blueprint, train_input_fn: Callable[..., Any], eval_input_fn: Any, eval_steps: int | None
) -> GraphJob:
    """Return the training as a job. Hooks are not part of it.

    Args:
      blueprint: the model.
      train_input_fn: the input of the training.
      eval_input_fn: that of the evaluation.
      eval_steps: batches of an evaluation. None: all.
    """
    graph = tf.Graph()
    with graph.as_default():
        step = blueprint.begin_graph()
        spec = blueprint.build(train_input_fn, ModeKeys.TRAIN)
        blueprint.start_warm(has_checkpoint=False)
        add_loss_summary(spec.loss)
        saver = spec.scaffold.saver or tf1.train.Saver(sharded=True)

    graphs = EvaluationGraphs()

    def evaluated(session: Any) -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="trainerd-evaluation-") as scratch:
            with graph.as_default():
                prefix = saver.save(session, str(Path(scratch, "model.ckpt")), write_meta_graph=False)
            made = graphs.of(blueprint, eval_input_fn, hooks=False, is_new=False)
            found = made.evaluate(eval_steps, (), prefix, lambda: False)
        return {name: value for name, value in found.items() if name != GLOBAL_STEP}

    return GraphJob(
        graph,
        spec.train_op,
        metrics={"loss": spec.loss},
        saver=saver,
        global_step=step,
        init_fn=spec.scaffold.init_fn,
        evaluate=evaluated,
        config=blueprint.config.session_config,
    )
