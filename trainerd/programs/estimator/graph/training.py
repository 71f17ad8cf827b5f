"""The training of an Estimator: one graph, one input, one session."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainerd.programs.estimator.graph.blueprint import Blueprint, with_default_initializers
from trainerd.programs.estimator.model_fn import EstimatorSpec, ModeKeys
from trainerd.programs.estimator.training import Extras, Training
from trainerd.programs.monitored.graph_session import MonitoredSession
from trainerd.programs.monitored.training_session import MonitoredTrainingSession

tf1 = tf.compat.v1


class GraphTraining(Training):
    """The training of a model that a `model_fn` builds; see `Training`.

    Args:
      blueprint: the model.
      input_fn, extras, restarts_input: see there.
    """

    session: MonitoredSession

    def __init__(
        self, blueprint: Blueprint, input_fn: Callable[..., Any], extras: Extras, *, restarts_input: bool = False
    ) -> None:
        super().__init__(blueprint.config, input_fn, extras, restarts_input=restarts_input)
        self._blueprint = blueprint
        self._graph = tf.Graph()
        self._runs, self._logged_at = 0, time.monotonic()

    def _open(self) -> None:
        blueprint = self._blueprint
        with self._graph.as_default(), tf1.device(device_of(self._config)):
            self._global_step = blueprint.begin_graph()
            spec = blueprint.build(self._input_fn, ModeKeys.TRAIN)
            blueprint.start_warm(tf.train.latest_checkpoint(self._config.model_dir) is not None)
            add_loss_summary(spec.loss)
            add_saver(spec, self._config)
            self._fetches = [spec.train_op, spec.loss]
            self.session = self._session_of(spec)
            if self._restarts_input:
                makers = [op for op in self._graph.get_operations() if op.type == "MakeIterator"]
                # As TensorFlow's: what the session adds to a run would move the input to its old position.
                self.session.run_step_fn(lambda step_context: tf1.Session.run(step_context.session, makers))

    def _session_of(self, spec: EstimatorSpec) -> Any:
        config, extras = self._config, self._extras
        return MonitoredTrainingSession(
            master=config.master,
            is_chief=config.is_chief,
            checkpoint_dir=config.model_dir,
            scaffold=with_default_initializers(spec.scaffold),
            hooks=[*extras.hooks, *spec.training_hooks],
            chief_only_hooks=spec.training_chief_hooks,
            save_checkpoint_secs=config.save_checkpoints_secs,
            save_checkpoint_steps=config.save_checkpoints_steps,
            save_summaries_steps=config.save_summary_steps,
            save_summaries_secs=None,
            config=config.session_config,
            max_wait_secs=config.session_creation_timeout_secs,
            log_step_count_steps=config.log_step_count_steps,
            save_graph_def=config.checkpoint_save_graph_def,
            loss=spec.loss,
            saving_listeners=extras.listeners,
        )

    @property
    def step(self) -> int:
        """The global step."""
        return int(self.session.run_step_fn(lambda step_context: step_context.session.run(self._global_step)))

    def _as_default(self) -> contextlib.AbstractContextManager[Any]:
        found: contextlib.AbstractContextManager[Any] = self._graph.as_default()
        return found

    def _log_loss(self, loss: float, step: int) -> None:
        """Log the loss every so many runs, as TensorFlow's LoggingTensorHook does."""
        every = self._config.log_step_count_steps
        if every and self._runs % every == 0:
            now = time.monotonic()
            since = f" ({now - self._logged_at:.3f} sec)" if self._runs else ""
            tf1.logging.info("loss = %s, step = %s%s", loss, step, since)
            self._logged_at = now
        self._runs += 1

    def _steps(self, begun: int, last: float) -> None:
        session = self.session
        while not session.should_stop():
            loss = float(session.run(self._fetches)[1])
            self._done += 1
            if math.isnan(loss):
                tf1.logging.error("Model diverged with loss = NaN.")
                raise tf1.train.NanLossDuringTrainingError
            self.loss = loss
            self._log_loss(loss, begun + self._done)
            # What a run reads beside a step is the step before it, or that one. What saves nothing reads none.
            seen = session.step_beside_last_run
            if (seen < 0 or seen + 1 >= last) and self.step >= last:
                break


def device_of(config: Any) -> Any:
    """Return the placement of ops: variables are on the parameter servers, if there are any."""
    if config.device_fn is not None:
        return config.device_fn
    if not config.num_ps_replicas:
        return None
    return tf1.train.replica_device_setter(
        ps_tasks=config.num_ps_replicas,
        worker_device=f"/job:{config.task_type}/task:{config.task_id}",
        cluster=config.cluster_spec,
    )


def add_loss_summary(loss: Any) -> None:
    """Give the graph a summary of its loss, unless it has one."""
    if not any(each.op.name == "loss" for each in tf1.get_collection(tf1.GraphKeys.SUMMARIES)):
        tf1.summary.scalar("loss", loss)
    tf1.add_to_collection(tf1.GraphKeys.LOSSES, loss)


def add_saver(spec: EstimatorSpec, config: Any) -> None:
    """Give the graph a Saver that keeps as many checkpoints as the settings say, unless the model_fn has one."""
    if spec.scaffold.saver or tf1.get_collection(tf1.GraphKeys.SAVERS):
        return
    saver = tf1.train.Saver(
        sharded=True,
        max_to_keep=config.keep_checkpoint_max,
        keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
        defer_build=True,
        save_relative_paths=True,
    )
    tf1.add_to_collection(tf1.GraphKeys.SAVERS, saver)
