"""What is prepared is what `Session.run` does: for every structure, and where it fails."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainerd.sessions.tf1.callables import LIMIT, Callables

tf1 = tf.compat.v1
Pair = collections.namedtuple("Pair", ["a", "b"])


@pytest.fixture
def session() -> Iterator[Any]:
    with tf1.Graph().as_default(), tf1.Session() as found:
        yield found


def callables(session: Any, seen: list[Any] | None = None) -> Callables:
    """Callables of a session; `seen` gets the fetches that are prepared."""

    def see(fetches: Any, call: Any) -> Any:
        if seen is not None:
            seen.append(fetches)
        return call

    session.graph.finalize()
    return Callables(session, see)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return type(one) is type(other) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, tf1.ragged.RaggedTensorValue):
        return isinstance(other, tf1.ragged.RaggedTensorValue) and one.to_list() == other.to_list()
    if isinstance(one, tf1.SparseTensorValue):
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and np.array_equal(one, other)


def test_every_structure_is_given_back(session: Any) -> None:
    a, b = tf.constant(1, name="a"), tf.constant([2.0, 3.0])
    v = tf1.get_variable("v", [2], initializer=tf1.zeros_initializer())
    ref = tf1.get_variable("ref", [], initializer=tf1.ones_initializer(), use_resource=False)
    sparse = tf.SparseTensor([[0]], [5], [1])
    ragged = tf.ragged.constant([[[1, 2], []], [[3]]])
    text, op, init = tf.constant("text"), tf.no_op(), tf1.global_variables_initializer()
    fetches: list[Any] = [
        *(a, b, v, ref, text, op, init, sparse, "a:0", "a"),
        *([], [a], (a,), [a, a, b], [op], [a, [b, (v, {"x": text})]], {"caller": [op, a], "step": b}),
        *(
            Pair(a, b),
            collections.OrderedDict(z=a, y=b),
            {"s": sparse},
            ragged,
            [a, {"r": ragged}],
            {1: a, session: b},
            [init, op],
        ),
    ]
    session.run(init)
    prepared = callables(session)
    for _ in range(2):
        for fetch in fetches:
            assert same(prepared.run(fetch), session.run(fetch)), fetch


def test_a_list_that_is_remade_is_known_and_one_that_has_changed_is_not(session: Any) -> None:
    a, b = tf.constant(1), tf.constant(2)
    seen = list[Any]()
    prepared = callables(session, seen)
    assert prepared.run([a, b]) == [1, 2] and prepared.run([a, b]) == [1, 2]
    assert seen == [[a, b]]
    mutable = [a]
    assert prepared.run(mutable) == [1]
    mutable[0] = b
    assert prepared.run(mutable) == [2]


def test_there_is_a_bound_on_what_is_kept(session: Any) -> None:
    a = tf.constant(1)
    seen = list[Any]()
    prepared = callables(session, seen)
    fetches = [{str(number): a} for number in range(LIMIT + 1)]
    for each in [*fetches, fetches[LIMIT], fetches[0]]:
        assert prepared.run(each) == dict.fromkeys(each, 1)
    assert seen == [*fetches, fetches[0]], "the last one is still known, and the first one is forgotten"


@pytest.mark.parametrize("fetch", [None, 3, "nothing", "nothing:0", [None]])
def test_what_cannot_be_fetched_is_refused_in_the_same_words(session: Any, fetch: Any) -> None:
    tf.constant(1)
    prepared = callables(session)
    with pytest.raises((TypeError, ValueError, KeyError)) as theirs:
        session.run(fetch)
    with pytest.raises(theirs.type) as ours:
        prepared.run(fetch)
    assert str(ours.value) == str(theirs.value)


def test_errors_name_the_op_and_where_it_was_made(session: Any) -> None:
    bad = tf.debugging.check_numerics(tf.constant(np.nan), "not a number", name="bad")
    prepared = callables(session)
    with pytest.raises(tf.errors.InvalidArgumentError) as theirs:
        session.run(bad)
    with pytest.raises(tf.errors.InvalidArgumentError) as ours:
        prepared.run(bad)
    assert ours.value.op is theirs.value.op is bad.op and ours.value.node_def == theirs.value.node_def
    assert ours.value.message == theirs.value.message
    for part in ("Graph execution error:", "Detected at node 'bad' defined at", "not a number", "test_callables.py"):
        assert part in ours.value.message


def test_an_error_without_an_op_has_the_same_words() -> None:
    with tf1.Graph().as_default():
        late = tf1.ConfigProto(operation_timeout_in_ms=50)
        with tf1.Session(config=late) as session:
            item = tf1.FIFOQueue(1, tf.int32).dequeue()
            with pytest.raises(tf.errors.DeadlineExceededError) as theirs:
                session.run(item)
            with pytest.raises(tf.errors.DeadlineExceededError) as ours:
                callables(session).run(item)
            assert ours.value.message == theirs.value.message


@pytest.mark.parametrize("resource", [False, True])
def test_what_was_fetched_is_the_programs_own(session: Any, resource: bool) -> None:
    """It stays as it was while the model trains on, and the model stays as it is whatever is written into it."""
    v = tf1.get_variable("v", [3], initializer=tf1.zeros_initializer(), use_resource=resource)
    c = tf.constant([1.0, 2.0, 3.0])
    more = v.assign_add(tf.ones([3]))
    fetches = [v, tf.reshape(v, [1, 3]), v[0:1], tf.identity(v), v.read_value(), more, c, {"of": [v, (c, v)]}]
    session.run(tf1.global_variables_initializer())
    prepared = callables(session)
    for fetch in fetches:
        before = prepared.run(fetch)
        kept = tf.nest.map_structure(np.copy, before)
        prepared.run(more.op)
        assert all(map(np.array_equal, tf.nest.flatten(before), tf.nest.flatten(kept))), fetch
        held = session.run([v, c])
        for array in tf.nest.flatten(before):
            array += 100
        assert all(map(np.array_equal, session.run([v, c]), held)), fetch


def test_a_closed_session_says_so(session: Any) -> None:
    a = tf.constant(1)
    prepared = callables(session)
    prepared.run(a)
    session.close()
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
        prepared.run(a)


def test_containers_that_are_remade_are_not_taken_for_one_another(session: Any) -> None:
    constants = [tf.constant(number) for number in range(50)]
    prepared = callables(session)
    for _ in range(3):
        for number, constant in enumerate(constants):
            assert prepared.run(Pair(constant, constants[0])) == Pair(number, 0)
    ordered = collections.OrderedDict(a=constants[1])
    assert prepared.run(ordered) == {"a": 1}
    ordered["b"] = constants[2]
    assert prepared.run(ordered) == {"a": 1, "b": 2}
