"""TensorFlow's multi-worker strategy: made, run, and ended.

Of TensorFlow's private parts this needs `context`, to end collective operations from outside, to say how long a
worker may be silent and to read whether TensorFlow received SIGTERM; and `CollectiveAllReduceExtended`, which knows one
CPU device in each worker; and of Keras' a variable's `_value`: tests/tensorflow/test_internals.py names the versions
for which it holds.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
from tensorflow.python.eager import context

from trainerd.checkpoints.contents.device_copies import copies_of
from trainerd.checkpoints.contents.tensor_values import Values
from trainerd.errors import EntryError
from trainerd.job.devices import Devices, named
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
      devices: the names of this worker's; see `devices_of`. All workers have equally many.
      heartbeat_secs: seconds of silence after which TensorFlow gives a worker up.

    Attributes:
      strategy: TensorFlow's.
      rank: this worker's.
      device_count: the number of this worker's devices.
      totals: the variables of metrics, which each device has for itself.
      period: after how many steps the workers agree on whether to continue. The same on all.
    """

    def __init__(self, plan: ClusterPlan, devices: Sequence[str], *, heartbeat_secs: float) -> None:
        self.rank = plan.rank
        self.device_count = len(devices)
        self.period = 1
        self.totals: list[Any] = []
        self._sums: list[Any] = []  # those of the totals that TensorFlow would add up
        workers = [str(each) for each in plan.workers]
        context.context().configure_coordination_service(
            service_type="standalone",
            service_leader="/job:worker/replica:0/task:0",
            heartbeat_timeout_in_ms=int(2 * heartbeat_secs * 1000),  # who is gone is known before that, and named
        )
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": workers}),
            task_type="worker",
            task_id=plan.rank,
            rpc_layer="grpc",
            num_accelerators={"GPU": sum(each.startswith("GPU") for each in devices)},
        )
        # No `timeout_seconds` in its options: TensorFlow has a thread sleep for so long for each collective operation.
        with _each_cpu(devices):
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)

    def agree_every(self, period: int) -> None:
        """Have the workers agree after so many steps from now on."""
        self.period = period

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Make variables the same on all devices while the block runs, except for the totals of metrics.

        TensorFlow adds those up over the workers whenever they are read. That would be a collective operation, and a
        chief that saves or evaluates is alone. So each device has its own.
        """
        with self.strategy.scope(), tf.variable_creator_scope(self._own_total):
            yield

    def _own_total(self, make: Callable[..., Any], **options: Any) -> Any:
        if options.get("synchronization") is not tf.VariableSynchronization.ON_READ:
            return make(**options)
        alone = {"synchronization": tf.VariableSynchronization.AUTO, "aggregation": tf.VariableAggregation.NONE}
        found = make(**options | alone)
        if not any(each is found for each in self.totals):  # each device asks for it
            self.totals.append(found)
            if options.get("aggregation") == tf.VariableAggregation.SUM:  # which may be TensorFlow 1's
                self._sums.append(found)
        return found

    @contextlib.contextmanager
    def added_up(self) -> Iterator[None]:
        """Have the totals of metrics on this worker's first device be those of all its devices while the block runs."""
        copies = [copies_of(each) for each in self._sums if self.device_count > 1]
        before = Values(each[0] for each in copies)
        for each in copies:
            each[0].assign(tf.add_n([tf.convert_to_tensor(copy) for copy in each]))
        try:
            yield
        finally:
            before.put_back()

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

    def sum(self, number: tf.Tensor) -> tf.Tensor:
        """Return the sum of a number over all devices, in the graph. All workers must ask for it at the same time."""

        def summed() -> Any:
            own = tf.identity(number)  # on this device, by which the strategy knows where to
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own)

        return self.strategy.experimental_local_results(self.strategy.run(summed))[0]

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


def devices_of(wanted: Devices | None, plan: ClusterPlan) -> list[str]:
    """Choose the devices of this worker. The workers of one machine share its GPUs out.

    Args:
      wanted: the devices that the config names; None for one.
      plan: the workers.

    Returns:
      Their names.

    Raises:
      EntryError: this machine has fewer, or none of such a name.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        [cpu, *_] = tf.config.list_physical_devices("CPU")
        logical = tf.config.get_logical_device_configuration(cpu) or [None]
        return named(wanted or 1, [f"CPU:{number}" for number in range(len(logical))])
    there = [f"GPU:{number}" for number in range(len(gpus))]
    if isinstance(wanted, tuple):
        count, chosen = len(wanted), named(wanted, there)
    else:
        count = len(there) // plan.local_size if wanted == "all" else wanted or 1
        chosen = there[count * plan.local_rank :][:count]
    if count == 0 or count * plan.local_size > len(there) or (isinstance(wanted, tuple) and plan.local_size > 1):
        raise EntryError(
            f"devices = {wanted or 1!r}: {plan.local_size} workers on this machine share {len(there)} GPUs, and no two "
            "can use the same one. Start fewer workers, or set `devices` to a smaller number."
        )
    tf.config.set_visible_devices([gpus[int(each.partition(":")[2])] for each in chosen], "GPU")
    return chosen


@contextlib.contextmanager
def _each_cpu(devices: Sequence[str]) -> Iterator[None]:
    """Have a strategy use several CPU devices while it is made. TensorFlow takes one, or GPUs."""
    if len(devices) == 1 or devices[0].startswith("GPU"):
        yield
        return

    def local_devices(extended: Any, resolver: Any, worker: str) -> tuple[tuple[str, ...], str]:
        return tuple(f"{worker}/device:{each}" for each in devices), "CPU"

    before = CollectiveAllReduceExtended._initialize_local_devices
    CollectiveAllReduceExtended._initialize_local_devices = local_devices
    try:
        yield
    finally:
        CollectiveAllReduceExtended._initialize_local_devices = before
