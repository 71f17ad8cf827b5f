"""The training of an Estimator: one graph, one input, one session."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainerd.estimator.blueprint import Blueprint, with_default_initializers
from trainerd.estimator.model_fn import EstimatorSpec, ModeKeys
from trainerd.loop.outcome import Paused
from trainerd.monitored.training_session import MonitoredTrainingSession

tf1 = tf.compat.v1

_NO_STEPS = "Training with estimator made no steps. Perhaps input is empty or misspecified."


@dataclass(frozen=True)
class Extras:
    """What a program adds to a training.

    Attributes:
      hooks: `SessionRunHook`s.
      listeners: `CheckpointSaverListener`s.
    """

    hooks: Sequence[Any] = ()
    listeners: Sequence[Any] = ()


class Training:
    """A session that trains, from the first step until it is closed.

    Args:
      blueprint: the model.
      input_fn: the input, which is read from its beginning to its end, also over pauses.
      extras: hooks and listeners.
      begins_anew: whether the input begins at its beginning, and not where the last checkpoint was.
    """

    def __init__(
        self, blueprint: Blueprint, input_fn: Callable[..., Any], extras: Extras, *, begins_anew: bool = False
    ) -> None:
        self._begins_anew = begins_anew
        self.made_for = (input_fn, tuple(extras.hooks), tuple(extras.listeners))
        self._blueprint, self._input_fn, self._extras = blueprint, input_fn, extras
        self._config = blueprint.config
        self._graph = tf.Graph()
        self._log = _LossLog(self._config.log_step_count_steps)
        self.session: Any = None
        self.is_open = False
        self.loss: float | None = None

    def open(self) -> None:
        """Build the graph, and make the session."""
        blueprint = self._blueprint
        with self._graph.as_default(), tf1.device(device_of(self._config)):
            self._global_step = blueprint.begin_graph()
            spec = blueprint.build(self._input_fn, ModeKeys.TRAIN)
            blueprint.start_warm(tf.train.latest_checkpoint(blueprint.model_dir) is not None)
            add_loss_summary(spec.loss)
            add_saver(spec, self._config)
            self._fetches = [spec.train_op, spec.loss]
            self.session = self._session_of(spec)
            if self._begins_anew:
                makers = [op for op in self._graph.get_operations() if op.type == "MakeIterator"]
                # As TensorFlow's: what the session adds to a run would move the input to its old position.
                self.session.run_step_fn(lambda step_context: tf1.Session.run(step_context.session, makers))
        self.is_open = True

    def _session_of(self, spec: EstimatorSpec) -> Any:
        config, extras = self._config, self._extras
        if extras.listeners and not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            raise ValueError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
                "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
            )
        return MonitoredTrainingSession(
            master=config.master,
            is_chief=config.is_chief,
            checkpoint_dir=self._blueprint.model_dir,
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

    def run(self, last: float) -> bool:
        """Train until a step, the end of the input, or a hook's wish to stop.

        Args:
          last: the global step; infinity for no end.

        Returns:
          Whether it can go on.

        Raises:
          Paused: a pause was requested; the last step is on disk.
          NanLossDuringTrainingError: the loss is no number.
        """
        done, begun = 0, self.step
        self._log.begun = begun
        try:
            with self._graph.as_default():  # hooks ask it for what they need
                if begun < last:
                    done = self._steps(last)
                elif last < math.inf:
                    return True
                is_open = not self.session.should_stop()
        except (tf.errors.OutOfRangeError, StopIteration):
            is_open = False
        except BaseException as error:
            self.close(error)
            raise
        if self.session.is_paused:
            self.close()
            raise Paused
        if not done:
            tf1.logging.warning(_NO_STEPS)
        return is_open

    def _steps(self, last: float) -> int:
        """Run steps. Returns how many."""
        session, done = self.session, 0
        while not session.should_stop():
            loss = float(session.run(self._fetches)[1])
            done += 1
            if math.isnan(loss):
                tf1.logging.error("Model diverged with loss = NaN.")
                raise tf1.train.NanLossDuringTrainingError
            self.loss = loss
            self._log.ran(loss, done)
            # What a run reads beside a step is the step before it, or that one. What saves nothing reads none.
            seen = session.step_beside_last_run
            if (seen < 0 or seen + 1 >= last) and self.step >= last:
                break
        return done

    def save(self) -> None:
        """Make a checkpoint of this step, and wait until it is on disk."""
        self.session.save_now("schedule")

    def look(self) -> bool:
        """Look at the flag, between two steps. Returns whether a pause was requested."""
        if self.session is None:
            return False
        self.session.should_stop()
        return bool(self.session.is_paused)

    def close(self, error: BaseException | None = None) -> None:
        """Save the last step and close the session; it saves nothing that an error has torn."""
        self.is_open = False
        with self._graph.as_default():
            if error is None:
                self.session.close()
            else:
                self.session.__exit__(type(error), error, error.__traceback__)
        if self.loss is not None:
            tf1.logging.info("Loss for final step: %s.", self.loss)


class _LossLog:
    """Logs the loss every so many runs, as TensorFlow's LoggingTensorHook does."""

    def __init__(self, every: int | None) -> None:
        self._every = every or 0
        self.begun = 0  # the step from which runs are counted
        self._runs, self._at = 0, time.monotonic()

    def ran(self, loss: float, count: int) -> None:
        """The run of this number has given this loss."""
        if self._every and self._runs % self._every == 0:
            now = time.monotonic()
            since = f" ({now - self._at:.3f} sec)" if self._runs else ""
            tf1.logging.info("loss = %s, step = %s%s", loss, self.begun + count, since)
            self._at = now
        self._runs += 1


def device_of(config: Any) -> Any:
    """Where ops are placed: variables on the parameter servers, if there are any."""
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
