"""The devices that train, and what NVIDIA's library NVML says of the GPUs among them, without TensorFlow."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import psutil

from trainerd.system.extras import install_command
from trainerd.system.threads import called_every
from trainerd.text import size

log = logging.getLogger(__name__)

LOOK_SECS = 1.0
_MOST_OF_NOBODY = 1 << 30  # bytes that a driver and a desktop have of a GPU, at most
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class DeviceState:
    """The state of one device that trains.

    Attributes:
      name: TensorFlow's, such as "GPU:0".
      memory_bytes: the memory in use on it, by all processes; None if it is not known, as for a CPU.
      memory_total_bytes: the memory that it has, or None.
      utilization: the share of the last second or so in which it computed, from 0 to 1, or None.
      needed_bytes: the most memory that this process has had in use on it, or None. TensorFlow reserves more.
    """

    name: str
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization: float | None = None
    needed_bytes: int | None = None

    def __str__(self) -> str:
        """Return the device in one line."""
        known = []
        if self.memory_bytes is not None and self.memory_total_bytes is not None:
            known.append(f"{size(self.memory_bytes)} of {size(self.memory_total_bytes)}")
        if self.utilization is not None:
            known.append(f"{100 * self.utilization:.0f} % busy")
        return f"{self.name}: {', '.join(known)}" if known else self.name


@contextlib.contextmanager
def watched(
    devices: Mapping[str, int | None],
    show: Callable[[list[DeviceState]], object],
    peak: Callable[[str], int],
) -> Iterator[None]:
    """Show the devices at once, and every second while the block runs.

    A thread of its own asks NVML then, so the loop never waits for the driver.

    Args:
      devices: their names, each with the number that CUDA gives it in this process; None if it is not a GPU.
      show: called with all of them.
      peak: returns the most memory that this process has had in use on a GPU, by TensorFlow's name of it.
    """
    nvml = _nvml() if any(number is not None for number in devices.values()) else None
    handles = {name: _answer(_handle, nvml, number) for name, number in devices.items()}

    def look() -> None:
        found = [_device(nvml, name, handle) for name, handle in handles.items()]
        needed = {name: _answer(peak, name) for name, number in devices.items() if number is not None}
        show([replace(each, needed_bytes=needed.get(each.name)) for each in found])

    look()
    if nvml is None:
        yield
        return
    with called_every(LOOK_SECS, look, name="devices", patience=LOOK_SECS):  # a driver whose GPU is lost may not answer
        yield


def total_memory(number: int) -> int | None:
    """Return the memory of the GPU that has this number in CUDA, in bytes; None if unknown, or others use it too."""
    nvml = _nvml()
    handle = _answer(_handle, nvml, number)
    users = None if handle is None else _answer(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return None if users is None or len(users) > 1 else _device(nvml, "", handle).memory_total_bytes


class NvmlError(Exception):
    """NVML cannot be asked."""


class Gpus:
    """All GPUs of the machine, by the numbers that NVML gives them: by their places on the bus.

    Each method raises an NvmlError if NVML or its package is missing, or fails.
    """

    def __init__(self) -> None:
        self._library: Any = None

    def numbers(self) -> list[int]:
        """Return the numbers of all GPUs."""
        return list(self._of_each(lambda nvml, gpu: None))

    def processes(self) -> dict[int, list[int]]:
        """Return the compute processes on each GPU. What only draws, such as a desktop, is none."""
        return self._of_each(
            lambda nvml, gpu: [each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)],
        )

    def available_memory(self, is_own: Callable[[int], bool]) -> dict[int, int]:
        """Return the memory of each GPU that is free, or that certain processes have, in bytes.

        A GPU is left out if NVML does not say which process of this machine has how much of it, as in a container.

        Args:
          is_own: whether a process is one of them.
        """

        def available(nvml: Any, gpu: Any) -> int | None:
            memory, users = nvml.nvmlDeviceGetMemoryInfo(gpu), nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
            if any(each.usedGpuMemory is None or not psutil.pid_exists(each.pid) for each in users):
                return None
            if not users and memory.used > _MOST_OF_NOBODY:
                return None
            return int(memory.free + sum(each.usedGpuMemory for each in users if is_own(each.pid)))

        return {gpu: found for gpu, found in self._of_each(available).items() if found is not None}

    def temperatures(self) -> dict[int, float]:
        """Return the temperature of each GPU, in °C."""
        return self._of_each(lambda nvml, gpu: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)))

    def _of_each(self, question: Callable[[Any, Any], _Answer]) -> dict[int, _Answer]:
        if self._library is None:
            self._library = _load()
        nvml = self._library
        try:
            count = range(nvml.nvmlDeviceGetCount())
            return {number: question(nvml, nvml.nvmlDeviceGetHandleByIndex(number)) for number in count}
        except Exception as error:  # whatever is wrong with a driver
            self._library = None  # a driver that was loaded again needs a new start
            raise NvmlError(f"NVML fails: {error}") from error


def _load() -> Any:
    """Return NVML, ready to answer.

    Raises:
      NvmlError: its package or the driver is missing.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        cure = f"Install it with `{install_command('gpu')}`."
        raise NvmlError(f"the package `nvidia-ml-py` is not installed. {cure}") from None
    except Exception as error:  # the run trains, whatever is wrong with a driver or its package
        raise NvmlError(f"NVML fails: {error}") from error
    return pynvml


def _nvml() -> Any:
    """Return NVML, ready to answer; None if its package or the driver is missing."""
    try:
        return _load()
    except NvmlError as error:
        log.info("status does not show the memory and utilization of GPUs: %s", error)
        return None


def _answer(question: Callable[..., Any], *about: Any) -> Any:
    """Return NVML's answer; None if it has none: a GPU may lack a figure, or fail."""
    try:
        return question(*about)
    except Exception:  # as above
        return None


def _device(nvml: Any, name: str, handle: Any) -> DeviceState:
    """Return the present state of a device. A part of a GPU (MIG) has memory of its own, and no utilization."""
    if handle is None:
        return DeviceState(name)
    memory = _answer(nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _answer(nvml.nvmlDeviceGetUtilizationRates, handle)
    return DeviceState(
        name,
        memory_bytes=memory.used if memory else None,
        memory_total_bytes=memory.total if memory else None,
        utilization=rates.gpu / 100 if rates else None,
    )


def _handle(nvml: Any, number: int | None) -> Any:
    """Return NVML's handle of the GPU that has this number in CUDA; None if it is not certain which one that is."""
    if nvml is None or number is None:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = dict(enumerate(visible.split(","))).get(number, "").strip() if visible is not None else str(number)
    if named.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(named)
    if named.startswith("GPU-"):
        found = nvml.nvmlDeviceGetHandleByUUID(named)
    elif named.isdecimal() and _counts_alike(nvml):
        found = nvml.nvmlDeviceGetHandleByIndex(int(named))
    else:
        return None
    is_split, _ = _answer(nvml.nvmlDeviceGetMigMode, found) or (False, False)
    return None if is_split else found  # CUDA gives a part of it, and NVML the whole


def _counts_alike(nvml: Any) -> bool:
    """Return whether CUDA and NVML number the GPUs alike.

    NVML numbers them by their places on the bus. CUDA does so too if CUDA_DEVICE_ORDER is PCI_BUS_ID. Otherwise its
    first GPU is the fastest one.
    """
    if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return True
    gpus = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    return len(set(map(nvml.nvmlDeviceGetName, gpus))) == 1
