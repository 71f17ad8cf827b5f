"""The tiny job's loss as a step counter: how many steps were really done can be told from the loss alone.

w starts at 0 and w - TARGET shrinks by the same factor at each step, so the loss that step N reports is
TARGET² · (1 - 2·LEARNING_RATE)^(2·(N - 1)). A daemon that counted steps it did not do would be found out.
"""

from __future__ import annotations

import math

TARGET = 3.0
LEARNING_RATE = 1e-6


def step_of(loss: float) -> float:
    """The step that reported this loss; whole but for rounding."""
    return 1.0 + math.log(loss / TARGET**2) / (2.0 * math.log1p(-2.0 * LEARNING_RATE))
