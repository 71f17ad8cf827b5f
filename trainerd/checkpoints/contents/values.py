"""What variables hold at a moment, to be put back where what comes after it fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


class Values:
    """The values of variables. Where they are copied, that is when a variable is next written.

    Args:
      variables: TensorFlow's or Keras's.
    """

    def __init__(self, variables: Iterable[Any]) -> None:
        self._values = [(each, tf.convert_to_tensor(each)) for each in variables]

    def put_back(self) -> None:
        """Have the variables hold them again."""
        for variable, value in self._values:
            variable.assign(value)
