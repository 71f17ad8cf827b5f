"""What `trainerd prove` compares of two checkpoints."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

from tests.fake import FakeSession
from trainerd.proof.plan import Interruption, InterruptionKind
from trainerd.proof.trace import EVALUATION, INTERRUPTED, Trace, read, steps_marked
from trainerd.proof.traced.session import TracedSession
from trainerd.proof.traced.variables import Comparison, first_other_variable

NAMES = ["a text that is too long to be kept in the string itself", "", "ü"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, 2.5], False),
        ([0.0], [-0.0], False),
        ([float("nan")], [float("nan")], True),
        (NAMES, list(NAMES), True),
        (NAMES, NAMES[::-1], False),
        ([NAMES], NAMES, False),
        ("x", "x", True),
        ([1, 2], [1.0, 2.0], False),
        (tf.constant([1], tf.int32), tf.constant([1], tf.uint32), False),
    ],
)
def test_variables_are_compared_bit_for_bit(tmp_path: Path, one: Any, other: Any, same: bool) -> None:
    paths = [
        tf.train.Checkpoint(v=tf.Variable(value)).write(str(tmp_path / name))
        for name, value in (("one", one), ("other", other))
    ]
    count, name = first_other_variable(*map(Path, paths))
    assert count == 1 and name == (None if same else "v/.ATTRIBUTES/VARIABLE_VALUE")


def test_a_table_is_compared_in_the_order_of_its_keys(tmp_path: Path) -> None:
    def saved(name: str, words: dict[str, float]) -> Path:
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)
        for word, number in words.items():
            table.insert(word, number)
        rows = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, [0.0, 0.0], -1, -2)
        rows.insert([len(name)], [[1.0, 2.0]])
        return Path(tf.train.Checkpoint(table=table, rows=rows).write(str(tmp_path / name)))

    words = {chr(97 + number): float(number) for number in range(20)}
    one, other = saved("one", words), saved("two", dict(reversed(words.items())))
    assert first_other_variable(one, other) == (4, None)
    assert first_other_variable(one, saved("six", words | {"b": 7.0})) == (4, "table/.ATTRIBUTES/table-values")
    assert first_other_variable(one, saved("more", words)) == (4, "rows/.ATTRIBUTES/table-keys")


def test_what_only_tensorflow_can_read_is_named_and_not_compared(tmp_path: Path) -> None:
    def saved(name: str, value: float) -> Path:
        state = {"w": tf.Variable(value), "data": iter(tf.data.Dataset.range(3))}
        return Path(tf.train.Checkpoint(**state).write(str(tmp_path / name)))

    one = saved("one", 1.0)
    for other, differs in ((saved("same", 1.0), []), (saved("other", 2.0), ["w"])):
        comparison = Comparison(one, other)
        assert [each.label for each in comparison.differences()] == differs
        assert [name.partition("/")[0] for name in comparison.opaque] == ["data"]


class Killed(Exception):
    """Stands in for the end of the process."""


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill raises an exception, and the one that waits for its moment never comes."""

    def kill(pid: int, number: int) -> None:
        assert pid == os.getpid()
        raise Killed(signal.Signals(number).name)

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(threading, "Timer", mock.Mock())


@pytest.mark.usefixtures("kills")
@pytest.mark.parametrize("ends_at", [None, 7])
def test_a_kill_comes_before_the_run_is_over(tmp_path: Path, ends_at: int | None) -> None:
    due = Interruption(3, InterruptionKind.KILL, latest=10)
    with contextlib.closing(Trace(tmp_path / "trace")) as trace:
        session = TracedSession(FakeSession(ends_at=ends_at), trace, due)
        assert session.run_until(10).last_step == 3
        assert session.run_until(6).last_step == 6
        with pytest.raises(Killed, match="SIGKILL"):
            session.run_until(20)
    _, rows = read(tmp_path / "trace")
    assert rows[-1][0] == (20 if ends_at is None else 7)


@pytest.mark.usefixtures("kills")
def test_a_kill_in_an_evaluation_comes_before_anybody_has_its_metrics(tmp_path: Path) -> None:
    evaluated: list[int] = []

    def figures(step: int) -> dict[str, float]:
        evaluated.append(step)
        return {"loss": 1.0}

    due = Interruption(4, InterruptionKind.KILL, in_evaluation=True, latest=10)
    with contextlib.closing(Trace(tmp_path / "trace")) as trace:
        session = TracedSession(FakeSession(figures=figures), trace, due)
        session.run_until(2)
        assert session.evaluate() == {"loss": 1.0}
        assert session.run_until(10).last_step == 4
        with pytest.raises(Killed, match="SIGKILL"):
            session.evaluate()
    assert evaluated == steps_marked(tmp_path / "trace", EVALUATION) == [2, 4]
    assert steps_marked(tmp_path / "trace", INTERRUPTED) == [4]
