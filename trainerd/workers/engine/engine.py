"""TensorFlow's multi-worker strategy: made, run, and ended.

Of TensorFlow's private parts this needs `context`, to end collective operations from outside, to say how long a
worker may be silent and to read whether TensorFlow received SIGTERM; and of Keras' a variable's `_value`:
tests/tensorflow/test_internals.py names the versions for which it holds.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from trainerd.workers.plan import ClusterPlan

log = logging.getLogger(__name__)

# An error of a collective operation that is another worker's doing, or that of the network.
_CAUSED = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
)


class Engine:
    """Has the steps of all workers done together: variables are the same on all, and gradients are summed up.

    Must be made before anything else of TensorFlow is used.

    Args:
      plan: the workers. All of them must make it at the same time.
      heartbeat_secs: seconds of silence after which TensorFlow gives a worker up.

    Attributes:
      totals: the variables of metrics, which each worker has for itself.
      period: after how many steps the workers agree on whether to continue. The same on all.
    """

    def __init__(self, plan: ClusterPlan, *, heartbeat_secs: float) -> None:
        self.period = 1
        self.totals: list[Any] = []
        _choose_gpu(plan.local_rank)
        workers = [str(each) for each in plan.workers]
        context.context().configure_coordination_service(
            service_type="standalone",
            service_leader="/job:worker/replica:0/task:0",
            heartbeat_timeout_in_ms=int(2 * heartbeat_secs * 1000),  # who is gone is known before that, and named
        )
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": workers}), task_type="worker", task_id=plan.rank, rpc_layer="grpc"
        )
        # No `timeout_seconds` in its options: TensorFlow has a thread sleep for so long for each collective operation.
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)

    def agree_every(self, period: int) -> None:
        """Have the workers agree after so many steps from now on."""
        self.period = period

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Make variables the same on all workers while the block runs, except for the totals of metrics.

        TensorFlow adds those up over the workers whenever they are read. That would be a collective operation, and a
        chief that saves or evaluates is alone. So each worker has its own.
        """
        with self.strategy.scope(), tf.variable_creator_scope(self._own_total):
            yield

    def _own_total(self, make: Callable[..., Any], **options: Any) -> Any:
        if options.get("synchronization") is not tf.VariableSynchronization.ON_READ:
            return make(**options)
        alone = {"synchronization": tf.VariableSynchronization.AUTO, "aggregation": tf.VariableAggregation.NONE}
        self.totals.append(make(**options | alone))
        return self.totals[-1]

    def own(self, variables: Iterable[Any]) -> None:
        """Give each worker its own totals of the metrics that Keras has made while a step was traced.

        Args:
          variables: of Keras; others than those totals are left as they are.
        """
        for variable in variables:
            value = getattr(variable, "_value", None)
            is_total = getattr(value, "synchronization", None) is tf.VariableSynchronization.ON_READ
            if is_total and isinstance(value, tf.distribute.DistributedValues):
                [variable._value] = self.strategy.experimental_local_results(value)
                self.totals.append(variable._value)

    def replicated(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step as all workers do it together, each with its own batch."""

        def replicated_step(*batch: Any) -> Any:
            return self.strategy.run(step, args=batch)

        return replicated_step

    def sum(self, number: tf.Tensor) -> tf.Tensor:
        """Return the sum of a number over all workers, in the graph. All must ask for it at the same time."""

        def summed() -> Any:
            own = tf.identity(number)  # on this worker's device, by which the strategy knows where to
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own)

        return self.strategy.run(summed)

    def caused(self, error: BaseException) -> bool:
        """Return whether an error of a step may be that of another worker."""
        return isinstance(error, _CAUSED)


def abort(why: str) -> None:
    """End the collective operations under way in this process, from any thread. None can be begun any more."""
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, why)


def received_sigterm(seconds: float) -> bool:
    """Return whether TensorFlow received SIGTERM on any worker, or receives it within so many seconds.

    While it forms the cluster it handles the signal itself. Within a second it publishes it under the key that
    `tf.distribute.experimental.PreemptionWatcher` reads.
    """
    try:
        context.context().get_config_key_value("TF_DEFAULT_PREEMPTION_NOTICE_KEY", int(1000 * seconds))
    except tf.errors.OpError:  # no worker received one in time, or the cluster has ended
        return False
    return True


def _choose_gpu(number: int) -> None:
    """Use one GPU for each worker of a machine."""
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) > 1:
        tf.config.set_visible_devices(gpus[number % len(gpus)], "GPU")
