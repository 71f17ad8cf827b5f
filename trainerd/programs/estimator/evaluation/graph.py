"""An evaluation: its own graph, its own input, its own session; a checkpoint is only read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.op_kinds import ancestors
from trainerd.loop.outcome import Paused
from trainerd.programs.estimator.checkpoints import require_fit
from trainerd.programs.estimator.graph.blueprint import Blueprint, with_default_initializers
from trainerd.programs.estimator.model_fn import EstimatorSpec, ModeKeys
from trainerd.programs.estimator.waiting import Waiting
from trainerd.programs.monitored.graph_session import MonitoredSession
from trainerd.programs.monitored.session_creators import ChiefSessionCreator

tf1 = tf.compat.v1

GLOBAL_STEP = "global_step"
LOSS = "loss"
_BUILT = (
    "This was while the model was built over the input function of the evaluation, whose shapes it was called with."
)
_TAKEN = "Metric with name `{0}` is not allowed, because Estimator already defines a default metric with the same name."
# What a second evaluation in the same session would find changed: random numbers, queues, readers, Python's state.
_REMEMBERS = ("random", "shuffle", "sample", "pyfunc", "generator", "oneshot", "queue", "reader", "stack")


class EvaluationGraph:
    """The model and the input of an evaluation, built once.

    Each evaluation reads its input from the beginning, with the same random numbers, whichever came before: it has a
    session of its own, unless nothing in the graph would remember the one before.

    Args:
      blueprint: the model.
      input_fn: the input.
      is_new: whether a new model is evaluated, and not a checkpoint.

    Attributes:
      has_hooks: whether the model has hooks, which may add to the graph each time.

    Raises:
      ValueError: the model has a metric whose name is taken.
    """

    def __init__(self, blueprint: Blueprint, input_fn: Callable[..., Any], *, is_new: bool) -> None:
        self._config = blueprint.config
        self._graph = tf.Graph()
        with self._graph.as_default():
            step = blueprint.begin_graph()
            self._spec = _built(blueprint, input_fn)
            self._update, self._values = _metric_ops(self._spec)
            if GLOBAL_STEP in self._values:
                raise ValueError(_TAKEN.format(GLOBAL_STEP))
            self._values[GLOBAL_STEP] = step
            blueprint.start_warm(not is_new)
            self._scaffold = with_default_initializers(self._spec.scaffold)
        self._master = self._config.evaluation_master or ""
        self._kept: KeptSession | None = None
        is_plain = self._spec.scaffold.local_init_op is None  # its own may do anything
        if is_plain and _can_be_kept(self._graph, [self._update, *tf.nest.flatten(self._values)]):
            self._kept = KeptSession(ChiefSessionCreator(self._scaffold, self._master, self._config.session_config))
        self.has_hooks = bool(self._spec.evaluation_hooks)

    def evaluate(
        self, steps: int | None, hooks: Sequence[Any], checkpoint_path: str | None, is_paused: Callable[[], bool]
    ) -> dict[str, Any]:
        """Evaluate a checkpoint.

        Args:
          steps: how many batches. None: all.
          hooks: `SessionRunHook`s.
          checkpoint_path: what is restored; None for a model that is initialized.
          is_paused: asked after each batch; if it says yes, the evaluation is given up.

        Returns:
          The metrics, with the mean loss, and the global step.

        Raises:
          Paused: a pause was requested.
          ValueError: the checkpoint does not fit, or the input has no batch.
        """
        waiting = Waiting()
        with self._graph.as_default(), waiting.listening():

            def is_asked() -> bool:
                return waiting.is_paused() or is_paused()

            if checkpoint_path is not None:
                require_fit(checkpoint_path)
                if self._kept is not None and not hooks and not self.has_hooks:
                    return self._evaluate_in(self._kept, steps, checkpoint_path, is_asked)
            session_config = self._config.session_config
            creator = ChiefSessionCreator(
                self._scaffold, self._master, session_config, checkpoint_filename_with_path=checkpoint_path
            )
            found: dict[str, Any] = {}
            with MonitoredSession(creator, [*hooks, *self._spec.evaluation_hooks]) as session:
                _run(session.run, self._update, steps, lambda: session.should_stop() or is_asked())
                if session.is_paused or is_asked():
                    raise Paused
                values = self._values
                found |= session.run_step_fn(lambda step_context: step_context.session.run(values))
            return found

    def _evaluate_in(
        self, kept: KeptSession, steps: int | None, checkpoint_path: str, is_asked: Callable[[], bool]
    ) -> dict[str, Any]:
        session = kept.of(checkpoint_path)
        try:
            _run(session.run, self._update, steps, is_asked)
            if is_asked():
                raise Paused
            found = dict(session.run(self._values))
        except BaseException:
            kept.close()
            raise
        kept.rest()
        return found

    def close(self) -> None:
        """Close the session that is kept: no evaluation follows."""
        if self._kept is not None:
            self._kept.close()


class EvaluationGraphs:
    """The graph of the last evaluation, for the next one with the same input function."""

    def __init__(self) -> None:
        self._made_for: Any = None
        self._kept: EvaluationGraph | None = None

    def of(self, blueprint: Blueprint, input_fn: Callable[..., Any], *, hooks: bool, is_new: bool) -> EvaluationGraph:
        """Return the graph of an evaluation. With hooks, which may add to it, it is always a new one.

        Args:
          blueprint: the model.
          input_fn: the input.
          hooks: whether the evaluation has hooks of its own.
          is_new: whether a new model is evaluated, and not a checkpoint.
        """
        if self._kept is not None and self._made_for is input_fn and not hooks and not is_new:
            return self._kept
        if self._kept is not None:
            self._kept.close()
        made = EvaluationGraph(blueprint, input_fn, is_new=is_new)
        keeps = not (hooks or made.has_hooks or is_new)
        self._made_for, self._kept = (input_fn, made) if keeps else (None, None)
        return made


def _built(blueprint: Blueprint, input_fn: Callable[..., Any]) -> EstimatorSpec:
    try:
        return blueprint.build(input_fn, ModeKeys.EVAL)
    except Exception as error:  # a model_fn cannot know whose input it was called with
        error.add_note(_BUILT)
        raise


def _run(run: Callable[[Any], Any], update: Any, steps: int | None, is_over: Callable[[], bool]) -> None:
    """Run batches, to the end of the input at most.

    Raises:
      ValueError: there is no batch.
    """
    done = 0
    try:
        while (steps is None or done < steps) and not is_over():
            run(update)
            done += 1
    except (tf.errors.OutOfRangeError, StopIteration):
        if not done:
            raise ValueError(
                "the input function of the evaluation gives no batch: there is nothing to evaluate."
            ) from None


def _metric_ops(spec: EstimatorSpec) -> tuple[Any, dict[str, Any]]:
    """Return the op that takes a batch into account, and the metrics by name."""
    metrics = dict(spec.eval_metric_ops)
    if LOSS in metrics:
        raise ValueError(_TAKEN.format(LOSS))
    metrics[LOSS] = tf1.metrics.mean(spec.loss)
    return tf.group(*(update for _, update in metrics.values())), {name: value for name, (value, _) in metrics.items()}


def _can_be_kept(graph: Any, fetches: Sequence[Any]) -> bool:
    """Return whether only variables and iterators remember an evaluation: they are initialized again.

    Args:
      graph: the graph.
      fetches: the ops and tensors that the evaluation runs.
    """
    ops = ancestors([*fetches, *_iterator_initializers(graph)])
    functions = graph.as_graph_def().library.function
    kinds = {op.type.lower() for op in ops} | {node.op.lower() for each in functions for node in each.node_def}
    return not any(word in kind for kind in kinds for word in _REMEMBERS)


def _iterator_initializers(graph: Any) -> list[Any]:
    return [op for op in graph.get_operations() if op.type == "MakeIterator"]


class KeptSession:
    """A session that all evaluations of a graph use; each finds it in the state of a new one.

    A new session costs more than a small evaluation: TensorFlow optimizes the graph again for each of its first runs.

    Args:
      creator: makes the session.
    """

    def __init__(self, creator: ChiefSessionCreator) -> None:
        self._creator = creator
        self._session: Any = None
        self._anew: list[Any] = []
        self._resting: threading.Thread | None = None

    def of(self, checkpoint_path: str) -> Any:
        """Return the session, with a checkpoint restored, and everything else as at the beginning."""
        if self._session is None:
            if not self._anew:  # the first session finalizes the graph, even if its checkpoint cannot be restored
                self._anew = [*_iterator_initializers(tf1.get_default_graph()), tf1.local_variables_initializer()]
            self._session = self._creator.create_session_from(checkpoint_path)
        else:
            self._rested()
            self._creator.finalized_scaffold().saver.restore(self._session, checkpoint_path)
            self._session.run(self._anew)
        return self._session

    def rest(self) -> None:
        """End the input of an evaluation, which is over, in the background, and not when the next one begins.

        TensorFlow waits for the thread that tunes an input, which sleeps the longer the older the input is.
        """
        session, inputs = self._session, _iterator_initializers(tf1.get_default_graph())
        self._resting = threading.Thread(target=lambda: session.run(inputs), name="trainerd-old-input", daemon=True)
        self._resting.start()

    def _rested(self) -> None:
        if self._resting is not None:
            self._resting.join()

    def close(self) -> None:
        """Close it; the next evaluation makes another."""
        self._rested()
        session, self._session = self._session, None
        if session is not None:
            session.close()
