"""The strategy for the devices that the config names. TensorFlow is imported, but configured by the job first."""

from __future__ import annotations

from functools import cache

import tensorflow as tf

from trainerd.checkpoints.format.gpu_room import GPURoom, peak_memory
from trainerd.job.devices import Devices, named, wanted_devices
from trainerd.system.gpus import total_memory

_TAKEN = 0.9  # of a GPU's memory, that TensorFlow takes at least if it is alone: it leaves some to the driver


def strategy() -> tf.distribute.Strategy:
    """Return the strategy for the devices that `devices` of the config names.

    A model that is made in its scope is trained on all of them, each with its part of every batch. Without that key, or
    outside of trainerd's commands, it is TensorFlow's default strategy: one device. In the scope of a strategy, such as
    that of several workers, it is that one.

        with trainerd.strategy().scope():
            model = keras.Sequential(...)
            model.compile(...)

    Returns:
      A `tf.distribute.MirroredStrategy`, the same at each call; or the default strategy.

    Raises:
      EntryError: this machine has fewer devices, or none of such a name.
    """
    devices = wanted_devices()
    if devices is None or tf.distribute.has_strategy():
        return tf.distribute.get_strategy()
    return _strategy_over(devices)


@cache
def _strategy_over(devices: Devices) -> tf.distribute.Strategy:
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    there = [f"{each.device_type}:{each.name.rpartition(':')[2]}" for each in tf.config.list_logical_devices(kind)]
    return tf.distribute.MirroredStrategy(named(devices, there))


def gpu_numbers() -> dict[str, int]:
    """Return the number that CUDA gives each of TensorFlow's GPUs in this process.

    The two differ if the program hides a GPU from TensorFlow, or splits one into several logical devices.
    """
    visible = tf.config.get_visible_devices("GPU")
    found: list[int] = []
    for number, gpu in enumerate(tf.config.list_physical_devices("GPU")):
        if gpu in visible:
            found += [number] * len(tf.config.get_logical_device_configuration(gpu) or [None])
    return {f"GPU:{place}": number for place, number in enumerate(found)}


def gpu_room() -> GPURoom:
    """Return what decides whether snapshots may stay on the GPUs of this process."""
    return GPURoom(_memory_limit, peak_memory)


def _memory_limit(name: str) -> int | None:
    """Return how many bytes of memory TensorFlow can use on a GPU; None if that is unknown.

    Args:
      name: TensorFlow's name of it, such as "GPU:0".
    """
    number = gpu_numbers().get(name)
    if number is None:
        return None
    configured = tf.config.get_logical_device_configuration(tf.config.list_physical_devices("GPU")[number]) or []
    limits = [each.memory_limit for each in configured if each.memory_limit is not None]
    if limits:
        return int(min(limits) * 2**20)
    total = total_memory(number)
    return None if total is None or len(configured) > 1 else int(_TAKEN * total)
