"""Weights for TensorBoard: histograms, and the first layer's kernels as images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

MAX_KERNELS = 64
_ENOUGH = 1 << 20  # weights for a histogram: TensorBoard's way to it takes nine times their memory


def write_weights(weights: Mapping[str, Any], step: int) -> None:
    """Write a histogram of each variable, and the kernels of the first convolution.

    Args:
      weights: the values by name, in the order of the layers.
      step: the global step that they belong to.
    """
    for name, value in weights.items():
        if value.dtype == tf.string:
            continue
        tf.summary.histogram(f"weights/{name}", _sample(value), step=step)
    for name, value in weights.items():
        if len(value.shape) == 4:
            tf.summary.image(f"kernels/{name}", tile_kernels(value.numpy())[None], step=step)
            return


def _sample(value: Any) -> Any:
    """Return a sample of a large variable's weights at regular distances, from all columns of a matrix."""
    stride = -(-value.shape.num_elements() // _ENOUGH)
    if stride <= 1:
        return value
    while math.gcd(stride, value.shape[-1]) > 1:
        stride += 1
    return tf.reshape(value, [-1])[::stride]


def tile_kernels(kernels: NDArray[Any]) -> NDArray[np.float32]:
    """Arrange convolution kernels in a square.

    Args:
      kernels: shape [height, width, channels in, kernels].

    Returns:
      One picture of shape [rows, columns, 3 or 1] in 0 to 1, a pixel of space between kernels. Kernels with three
      input channels are shown in color; of others, the mean over the channels is.
    """
    kernels = kernels[..., :MAX_KERNELS].astype(np.float32)
    height, width, channels, count = kernels.shape
    if channels != 3:
        kernels, channels = kernels.mean(axis=2, keepdims=True), 1
    low, high = float(kernels.min()), float(kernels.max())
    kernels = (kernels - low) / (high - low if high > low else 1.0)
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    picture = np.ones((rows * (height + 1) - 1, columns * (width + 1) - 1, channels), np.float32)
    for index in range(count):
        top, left = index // columns * (height + 1), index % columns * (width + 1)
        picture[top : top + height, left : left + width] = kernels[..., index]
    return picture
