"""The saved state of a TensorFlow 1 graph: the ops that take a snapshot, write it, and restore the input.

A `Saver` says which tensors go into a checkpoint and under which names: they are read off its own SaveV2 ops, so that
any Saver restores what is written here. A snapshot is made of session handles (`tf.compat.v1.get_session_handle`):
the session keeps the tensors, which share the variables' memory until a step writes to them, and later gives them to
another SaveV2.
"""

from __future__ import annotations

import contextlib
import logging
import re
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.checkpoints.contents.op_kinds import ancestors
from trainerd.checkpoints.contents.tensor_values import owned
from trainerd.checkpoints.format.os_errors import as_os_errors
from trainerd.checkpoints.snapshot import Earlier, no_earlier
from trainerd.errors import DataError
from trainerd.sessions.tf1.input_checks import inexact_inputs, without_position
from trainerd.sessions.tf1.positions import POSITION, IteratorPosition

tf1 = tf.compat.v1
log = logging.getLogger(__name__)

_UNINITIALIZED = "the iterator has not been initialized"
_WAY_OUT = (
    "Write it without from_generator, tf.py_function and tf.numpy_function, without stateful random ops in `map`, and "
    "without a shuffle(...) in a function"
)
_ITERATORS = ("IteratorV2", "Iterator", "OneShotIterator")
# Stateful, and yet they leave everything as it is.
_READERS = {
    "IsVariableInitialized",
    "IteratorToStringHandle",
    "ReadVariableOp",
    "VarHandleOp",
    "VarIsInitializedOp",
    "Variable",
    "VariableV2",
}


@dataclass(frozen=True)
class Effects:
    """The effects of running some fetches.

    Attributes:
      changes: whether it may change a variable.
      makes: the iterators that it initializes, and the operation that does: an iterator may get one dataset or another.
      reads: the iterators that it names and takes elements from.
      placeholders: the names of the placeholders that may be fed to it.
    """

    changes: bool
    makes: Mapping[str, str]
    reads: frozenset[str]
    placeholders: frozenset[str]


def _is_change(op: Any) -> bool:
    """Return whether an operation may change a variable, by its resource or by reference."""
    by_reference = any(argument.is_ref for argument in op.op_def.input_arg)
    return bool(op.op_def.is_stateful or by_reference) and op.type not in _READERS


@dataclass(frozen=True)
class _Ops:
    """The ops of one iterator.

    They are its name, its state as bytes, the placeholder for such bytes, and the op that restores them.
    """

    name: str
    serialized: Any
    fed: Any
    restored: Any


class GraphState:
    """The part of a graph that is saved. It adds ops to the graph, which therefore must not be finalized yet.

    Args:
      graph: whose state.
      saver: a `tf.compat.v1.train.Saver`, which says what is saved; None if nothing is.

    Attributes:
      has_initializers: whether something in it initializes iterators.
      saved_nodes: the names of the nodes whose values or positions are saved.

    Raises:
      ValueError: the Saver writes a format that TensorFlow itself has given up.
      RuntimeError: the graph is finalized.
    """

    def __init__(self, graph: Any, saver: Any) -> None:
        self.graph = graph
        self.saver = saver
        self._writes_meta_graph = True
        self._has_store = True
        self._abandoned: deque[dict[Any, Any]] = deque()
        keys, slices, tensors = _saved(graph, saver) if saver is not None else ([], [], [])
        self._keys = [*keys]
        self._whole = {key: tensor for key, part, tensor in zip(keys, slices, tensors, strict=True) if not part}
        with graph.as_default(), tf.name_scope("trainerd"), tf.device("CPU:0"), graph.control_dependencies(None):
            self._owned = [tf.identity(owned(tensor)) for tensor in tensors]
            self._handles = [tf1.get_session_handle(tensor) for tensor in self._owned]
            self._fed = [tf1.placeholder(tf.string, [], "handle") for _ in tensors]
            self._kept = [
                tf.raw_ops.GetSessionTensor(handle=handle, dtype=tensor.dtype.base_dtype)
                for handle, tensor in zip(self._fed, tensors, strict=True)
            ]
            self._positions = [_ops_of(op) for op in graph.get_operations() if op.type in _ITERATORS]
            self._inexact = inexact_inputs(graph) if self._positions else []
            self._lost = {each.name for each in self._inexact if not each.is_saved}  # of the iterators
            self.has_initializers = any(op.type == "MakeIterator" for op in graph.get_operations())
            keys += [POSITION + position.name for position in self._positions]
            slices += [""] * len(self._positions)
            self._states = [tf1.placeholder(tf.string, [], "state") for _ in self._positions]
            self._prefix = tf1.placeholder(tf.string, [], "prefix")
            if saver is not None:
                self._save = tf.raw_ops.SaveV2(
                    prefix=self._prefix,
                    tensor_names=keys,
                    shape_and_slices=slices,
                    tensors=[*self._kept, *self._states],
                )
            self._forget = tf.group([tf.raw_ops.DeleteSessionTensor(handle=handle) for handle in self._fed])
        self.saved_nodes = {op.name for op in ancestors(tensors)} | {position.name for position in self._positions}
        specs = sorted(f"{key} {t.dtype.base_dtype.name} {t.shape}" for key, t in zip(keys, tensors, strict=False))
        self.description = "\n".join(specs)
        self._size = sum((t.shape.num_elements() or 0) * t.dtype.size for t in tensors if t.shape.is_fully_defined())

    def write_meta_graph(self, is_written: bool) -> None:
        """Write the graph with each checkpoint from now on, or not."""
        self._writes_meta_graph = is_written

    def take(self, session: Any, step: int, made_by: Mapping[str, str], at_end: Set[str]) -> GraphSnapshot:
        """Return the state now. Called at a boundary.

        Args:
          session: a `tf.compat.v1.Session` of the graph.
          step: the global step.
          made_by: the operation that initialized each iterator last.
          at_end: the iterators that a run has exhausted.
        """
        self._forget_abandoned(session)
        handles, values = self._held(session)
        names = [position.name for position in self._positions]
        states = [
            IteratorPosition(made_by.get(name, ""), self._state(session, position), name in at_end).to_bytes()
            for name, position in zip(names, self._positions, strict=True)
        ]
        values |= dict(zip(self._states, states, strict=True))
        snapshot = GraphSnapshot(step, self._size + sum(map(len, states)), self, session, handles, values)
        weakref.finalize(snapshot, self._abandoned.append, handles)
        return snapshot

    def _held(self, session: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Return the variables' values: handles that the session keeps, or the values themselves."""
        if self._has_store:
            try:
                handles = [handle.get_raw_handle() for handle in _run(session, self._handles)]
                return dict(zip(self._fed, handles, strict=True)), {}
            except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError) as error:
                if "session" not in error.message.lower():  # a variable is not initialized
                    raise
                self._has_store = False  # a session over the network
        return {}, dict(zip(self._kept, _run(session, self._owned), strict=True))

    def require_exact_inputs(self, fetches: Sequence[Any] | None = None, *, refuse: bool = False) -> None:
        """Warn of inputs that a resume does not continue exactly, as far as the graph shows it.

        Args:
          fetches: the operations and tensors that a step runs: only the inputs that they read count. None: all count.
          refuse: whether such an input is an error.

        Raises:
          EntryError: there is one, and `refuse` is true.
        """
        read = None if fetches is None else self.effects(fetches).reads
        for each in self._inexact:
            if read is None or each.name in read:
                each.warn_or_refuse(refuse=refuse)

    def require_positions(self, session: Any, fetches: Sequence[Any], *, refuse: bool) -> None:
        """Warn of inputs whose position TensorFlow cannot save, before the first checkpoint would.

        Args:
          session: a session in which they are initialized.
          fetches, refuse: see `require_exact_inputs`.

        Raises:
          EntryError: there is one, and `refuse` is true.
        """
        read = self.effects(fetches).reads
        for position in self._positions:
            if position.name in read:
                self._state(session, position, refuse=refuse)

    def _state(self, session: Any, position: _Ops, *, refuse: bool = False) -> bytes:
        """Return an iterator's position; empty if it has none, or none that can be saved, which is reported once."""
        if position.name in self._lost:
            return b""
        try:
            state: bytes = _run(session, position.serialized)
        except tf.errors.OpError as error:
            if _UNINITIALIZED not in error.message:
                self._lost.add(position.name)
                why = f"{_reason(error.message)} {_WAY_OUT}"
                without_position(position.name, self.graph, why).warn_or_refuse(refuse=refuse)
            return b""
        return state

    def require_shapes(self, session: Any, prefix: Path) -> None:
        """Require that the variables have the shapes of the graph. TensorFlow 2 restores one of another shape.

        Args:
          session: a session whose variables were restored.
          prefix: the checkpoint that they were restored from.

        Raises:
          DataError: a variable has another shape.
        """
        shapes = tf.train.load_checkpoint(str(prefix)).get_variable_to_shape_map()
        for key, tensor in self._whole.items():
            if key in shapes and not tensor.shape.is_compatible_with(shapes[key]):
                found = np.shape(_run(session, tensor))
                if not tensor.shape.is_compatible_with(found):  # a Saver may reshape
                    raise DataError(
                        f"{prefix} does not fit the graph: the variable {key} has the shape {list(found)} there, and "
                        f"{tensor.shape.as_list()} in the graph. Use another `logdir` for another model."
                    )

    def positions(self, prefix: Path) -> dict[str, IteratorPosition]:
        """Return the iterators' positions in a checkpoint, by their names."""
        reader = tf.train.load_checkpoint(str(prefix))
        keys = reader.get_variable_to_shape_map()
        names = [position.name for position in self._positions if POSITION + position.name in keys]
        names = [name for name in names if name not in self._lost]
        found = {name: reader.get_tensor(POSITION + name) for name in names}
        return {name: IteratorPosition.of(content) for name, content in found.items() if content}

    def move(self, session: Any, states: Mapping[str, bytes]) -> None:
        """Move the iterators to these states. Those that are not initialized yet stay so."""
        for position in self._positions:
            if position.name in states:
                try:
                    _run(session, position.restored, {position.fed: states[position.name]})
                except tf.errors.FailedPreconditionError:
                    continue
                except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
                    self._restart(session, position.name)

    def _restart(self, session: Any, name: str) -> None:
        """Restart an input whose position is that of another dataset, such as one with other stages."""
        makers = [
            op for op in self.graph.get_operations() if op.type == "MakeIterator" and name in self.iterators_of(op)
        ]
        needed = {op.type for op in ancestors(makers)}
        if len(makers) != 1 or "Placeholder" in needed:  # it is the program that knows with what
            raise ValueError(f"the position of the input {name} does not fit it: the dataset has changed.")
        log.warning("the dataset of the input %s has changed: it restarts", name, extra={"event": "input"})
        _run(session, makers[0])

    def effects(self, fetches: Sequence[Any]) -> Effects:
        """Return the effects of running these tensors and operations; a None among them may change any variable."""
        ops = ancestors([fetch for fetch in fetches if fetch is not None])
        uses = [(op, name) for op in ops for name in self.iterators_of(op)]
        return Effects(
            changes=any(fetch is None for fetch in fetches) or any(map(_is_change, ops)),
            makes={name: op.name for op, name in uses if op.type == "MakeIterator"},
            reads=frozenset(name for op, name in uses if op.type.startswith("IteratorGetNext")),
            placeholders=frozenset(op.name for op in ops if op.type.startswith("Placeholder")),
        )

    def iterators_of(self, op: Any) -> list[str]:
        """Return the iterators among an operation's inputs."""
        known = {position.name for position in self._positions}
        return [source.op.name for source in op.inputs if source.op.name in known]

    def write(self, snapshot: GraphSnapshot, prefix: Path) -> None:
        """Write a snapshot's files, the graph's own among them, as a Saver does."""
        with as_os_errors():
            _run(snapshot.session, self._save, {**snapshot.handles, **snapshot.values, self._prefix: str(prefix)})
        if self._writes_meta_graph:
            prefix.with_name(f"{prefix.name}.meta").write_bytes(self.meta_graph.SerializeToString())

    def first_change(self, before: GraphSnapshot, after: GraphSnapshot) -> str | None:
        """Return the first variable whose value differs in two snapshots, in words; None if none does."""
        if not before.handles or not after.handles:
            return None  # given back already, or the session keeps none
        ones, others = (_run(each.session, self._kept, each.handles) for each in (before, after))
        pairs = zip(self._keys, ones, others, strict=True)
        changed = (key for key, one, other in pairs if not _are_same(np.asarray(one), np.asarray(other)))
        return next((f"the state: the variable {key!r}" for key in changed), None)

    @cached_property
    def meta_graph(self) -> Any:
        """The graph as a MetaGraphDef, with what restores it."""
        return meta_graph(self.graph, self.saver)

    def forget(self, snapshot: GraphSnapshot) -> None:
        """Free a snapshot's memory. A snapshot that is never written is freed when the next one is taken."""
        if snapshot.handles:
            handles = dict(snapshot.handles)
            snapshot.handles.clear()
            _run(snapshot.session, self._forget, handles)

    def _forget_abandoned(self, session: Any) -> None:
        while self._abandoned:
            if feeds := self._abandoned.popleft():
                with contextlib.suppress(tf.errors.OpError):  # of a session that was made again since
                    _run(session, self._forget, feeds)


def meta_graph(graph: Any, saver: Any) -> Any:
    """Return a graph as a MetaGraphDef, with what restores it."""
    with graph.as_default():
        return tf1.train.export_meta_graph(graph=graph, saver_def=saver.saver_def if saver is not None else None)


@dataclass(frozen=True)
class GraphSnapshot:
    """The state of a graph at one boundary.

    Attributes:
      step: the global step of the boundary.
      size: about how many bytes its files will have.
      state: the ops that write it.
      session: the session that keeps its tensors.
      handles: of its tensors; empty once their memory is freed, or if the session keeps none.
      values: the iterators' positions, and the tensors that have no handles.
    """

    step: int
    size: int
    state: GraphState
    session: Any
    handles: dict[Any, Any]
    values: dict[Any, Any]

    def write(self, prefix: Path, moved: Callable[[int], None], earlier: Earlier = no_earlier) -> dict[str, str]:
        """Write it, once, as `prefix.index`, `prefix.data-00000-of-00001` and `prefix.meta`. On any thread."""
        self.state.write(self, prefix)
        return {}

    def first_change(self, later: GraphSnapshot) -> str | None:
        """See `Snapshot`."""
        return self.state.first_change(self, later)

    def release(self) -> None:
        """Make the session free its tensors."""
        with contextlib.suppress(RuntimeError, tf.errors.OpError):  # it is closed, and has forgotten them
            self.state.forget(self)


def _are_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same, bit for bit: a NaN is, too."""
    return bool(np.array_equal(one, other) if one.dtype == object else one.tobytes() == other.tobytes())


def _saved(graph: Any, saver: Any) -> tuple[list[str], list[str], list[Any]]:
    """Return the names, the slices and the tensors of a Saver's SaveV2 ops."""
    definition = saver.saver_def
    if definition is None:  # built when it is first used
        with graph.as_default():
            saver.build()
        definition = saver.saver_def
    if definition.version != definition.V2:
        raise ValueError("the Saver writes checkpoints of version 1; make it with write_version=tf.train.SaverDef.V2")
    needed = ancestors([graph.get_tensor_by_name(definition.save_tensor_name)])
    keys: list[str] = []
    slices: list[str] = []
    tensors: list[Any] = []
    for op in sorted((each for each in needed if each.type == "SaveV2"), key=lambda op: str(op.name)):
        keys += [key.decode() for key in tf.get_static_value(op.inputs[1])]
        slices += [part.decode() for part in tf.get_static_value(op.inputs[2])]
        tensors += op.inputs[3:]
    return keys, slices, tensors


def _ops_of(op: Any) -> _Ops:
    handle = op.outputs[0]
    variant = tf.raw_ops.SerializeIterator(resource_handle=handle, external_state_policy=2)  # 2: fail
    fed = tf1.placeholder(tf.string, [], "position")
    parsed = tf.raw_ops.ParseTensor(serialized=fed, out_type=tf.variant)
    restored = tf.raw_ops.DeserializeIterator(resource_handle=handle, serialized=parsed)
    return _Ops(op.name, tf.raw_ops.SerializeTensor(tensor=variant), fed, restored)


def _reason(message: str) -> str:
    """Return the message of a session's error, without the place in which the op was made."""
    found = re.search(r"^Node: .*\n(.*)$", message, re.MULTILINE)
    return found[1] if found else message.splitlines()[0]


def _run(session: Any, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> Any:
    """Run trainerd's ops, without what a managed session adds to `run`."""
    return tf1.Session.run(session, fetches, feeds)
