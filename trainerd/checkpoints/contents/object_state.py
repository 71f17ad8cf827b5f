"""The state of objects that give it by themselves: generators of random numbers, variables, and users' own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_STATES = (("get_state", "set_state"), ("getstate", "setstate"), ("state_dict", "load_state_dict"))


def access(value: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """Return the functions that read and set the state of an object; None if it has none."""
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    elif isinstance(value, keras.random.SeedGenerator | tf.random.Generator):
        value = value.state
    if isinstance(value, np.random.BitGenerator):
        return functools.partial(getattr, value, "state"), functools.partial(setattr, value, "state")
    if isinstance(value, tf.Variable | keras.Variable):
        return value.numpy, value.assign
    for read, write in _STATES:
        if callable(getattr(value, read, None)) and callable(getattr(value, write, None)):
            return getattr(value, read), getattr(value, write)
    return None
