"""What `trainerd prove` compares of two checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

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
