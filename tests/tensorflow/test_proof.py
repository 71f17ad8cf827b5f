"""What `trainerd prove` compares of two checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from trainerd.proof.variables import first_other_variable

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
