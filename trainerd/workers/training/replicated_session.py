"""A `trainerd.Job` that several workers train: each step is done by all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
import xxhash

from trainerd.checkpoints.format.bundle_writer import Form, Item
from trainerd.checkpoints.format.snapshotter import OF_WORKER, TensorSnapshot
from trainerd.errors import EntryError
from trainerd.sessions.input.shuffle_order import restore_order
from trainerd.sessions.tf2.job_session import FunctionSession
from trainerd.sessions.tf2.replicas import Replicas
from trainerd.workers.engine.engine import Engine
from trainerd.workers.training.replicated_loop import ReplicatedLoop
from trainerd.workers.training.worker_batches import is_shared

ENDLESS = 2**40  # batches: from there on nobody sees the end
_KEY = OF_WORKER + "{rank}/own_state"


class OwnState(msgspec.Struct, frozen=True):
    """The own state of a worker. The chief's is stored where a single worker stores it.

    Attributes:
      position: in its input; empty if that of the chief is that of all.
      measured: the values of the variables that its devices have for themselves, such as those of metrics, in order.
    """

    position: bytes = b""
    measured: list[bytes] = []


class ReplicatedSession(FunctionSession):
    """A job as one of several workers trains it.

    Args:
      job: what to train: a Job, or a subclass's own.
      engine: has the workers do each step together.
      options: see `FunctionSession`.

    Raises:
      EntryError: the job cannot be trained; or its dataset may end before those of other workers do.
    """

    _reads_anew = False

    def __init__(self, job: Any, *, engine: Engine, **options: Any) -> None:
        self._engine = engine
        super().__init__(job, **options)

    @property
    def shares_position(self) -> bool:
        """True if all workers read one input, each its part of every batch, so that its position is that of all."""
        return self._iterator is None or not self._exact_input or is_shared(self._job.dataset)

    @property
    def has_own_state(self) -> bool:
        """True if each worker has something of its own that a checkpoint must hold."""
        return not self.shares_position or bool(self._own_variables)

    @property
    def _own_variables(self) -> list[Any]:
        """The variables that the devices of this worker have for themselves."""
        return self._engine.totals if self._engine.device_count == 1 else list(self._components.values())

    def own_state(self) -> bytes:
        """Return this worker's own state, in the form in which it is sent."""
        position = b""
        if not self.shares_position:
            variants = tf.raw_ops.SerializeIterator(resource_handle=self._iterator._iterator_resource)
            position = bytes(tf.io.serialize_tensor(variants).numpy())
        return msgspec.msgpack.encode(OwnState(position, [np.asarray(each).tobytes() for each in self._own_variables]))

    def with_own_states(self, snapshot: TensorSnapshot, states: Mapping[int, bytes]) -> TensorSnapshot:
        """Return a snapshot with the own states of other workers, by rank."""
        items = [
            Item(_KEY.format(rank=rank), "", tf.constant(value), Form(tf.string, len(value)))
            for rank, value in states.items()
        ]
        return replace(snapshot, items=[*snapshot.items, *items])

    def _restore_copies(self, prefix: Path) -> None:
        """Restore the own state that the worker of this rank had when a checkpoint was made, if it had one."""
        if self._engine.rank == 0:
            super()._restore_copies(prefix)
            return
        self._spread_seeds()
        reader, key = tf.train.load_checkpoint(str(prefix)), _KEY.format(rank=self._engine.rank)
        if not reader.has_tensor(key):
            return
        own = msgspec.msgpack.decode(reader.get_tensor(key), type=OwnState)
        variables = self._own_variables
        if len(own.measured) == len(variables):  # else it had another number of devices
            for variable, value in zip(variables, own.measured, strict=True):
                dtype = np.dtype(tf.as_dtype(variable.dtype).as_numpy_dtype)
                variable.assign(np.frombuffer(value, dtype).reshape(variable.shape))
        if own.position:
            variants = tf.io.parse_tensor(own.position, tf.variant)
            tf.raw_ops.DeserializeIterator(resource_handle=self._iterator._iterator_resource, serialized=variants)
            self._has_read = False
            restore_order(self._job.dataset, self._iterator, self._passes)

    def digests(self) -> dict[str, str]:
        """Return a digest of the value of each variable that is trained, by name."""
        return {name: xxhash.xxh3_64_hexdigest(value.numpy()) for name, value in self.weights().items()}

    def _replicas_of(self, variables: Iterable[Any]) -> Replicas:
        """Return this worker's devices: the engine has the workers do a step together."""
        return Replicas(self._engine.strategy, self._engine.rank)

    def _trace(self, step: Any) -> Any:
        self._require_endless()
        return super()._trace(step)

    def _in_scope(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def step_in_scope(*batch: Any) -> Any:
            with self._engine.scope():
                return step(*batch)

        return step_in_scope

    def _require_endless(self) -> None:
        """Refuse a dataset that may end before those of other workers do."""
        size = tf.data.INFINITE_CARDINALITY if self._job.dataset is None else int(self._job.dataset.cardinality())
        if size == tf.data.INFINITE_CARDINALITY or size >= ENDLESS:
            return
        raise EntryError(
            "the job's dataset ends, or its size is unknown: if it ended on one worker, the others would wait. "
            "End it with .repeat(); `max_steps` sets where training ends."
        )

    def _make_loop(self, stops_at: Sequence[str]) -> ReplicatedLoop:
        return ReplicatedLoop(self._engine, self._step, self._iterator, self._global_step, stops_at=stops_at)

    def _made(self, variables: list[Any]) -> None:
        self._engine.own(variables)
