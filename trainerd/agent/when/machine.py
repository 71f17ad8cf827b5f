"""Reads the facts of the machine, each only if a run needs it, and at most every five seconds."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import psutil

from trainerd.agent.when.facts import MachineFacts, Probe
from trainerd.agent.when.idle import IdleTime
from trainerd.agent.when.load import OthersLoad
from trainerd.agent.when.reading import Reading
from trainerd.system.gpus import Gpus, NvmlError
from trainerd.system.process_identity import lineage
from trainerd.system.threads import Background

log = logging.getLogger(__name__)

PROBE_SECS = 5.0
# The kernel's names for the sensors of processors: of Intel's, of AMD's, and of ARM's; and of AMD's GPUs.
_SENSORS = ("coretemp", "k10temp", "k8temp", "zenpower", "cpu", "soc", "amdgpu")
_LEAST_DEGREES, _MOST_DEGREES = 1.0, 200.0  # beyond these a sensor is broken
_SILENT = "it does not answer"
Reader = Callable[[Collection[int]], Reading[Any]]


class _PatientReader:
    """Reads on a thread of its own, and waits for a while: the driver of a lost GPU may never answer."""

    def __init__(self, name: str, read: Reader, patience: float) -> None:
        self._read, self._patience = read, patience
        self._thread = Background(f"trainerd-{name}")
        self._answer: queue.SimpleQueue[Reading[Any]] | None = None  # is not there yet

    def __call__(self, own_pids: Collection[int]) -> Reading[Any]:
        """Return the answer. While the last one is due, nothing more is asked."""
        if self._answer is not None:
            if self._answer.empty():
                return Reading(None, _SILENT)
            self._answer = None
        answer = queue.SimpleQueue[Reading[Any]]()
        self._thread.submit(lambda: answer.put(self._safely(own_pids)))
        try:
            return answer.get(timeout=self._patience)
        except queue.Empty:
            self._answer = answer
            return Reading(None, _SILENT)

    def _safely(self, own_pids: Collection[int]) -> Reading[Any]:
        try:
            return self._read(own_pids)
        except Exception as error:  # whatever is wrong with a sensor, the run trains
            return Reading(None, f"{type(error).__name__}: {error}")


class MachineProbes:
    """Reads the facts of the machine.

    A probe that fails or does not answer keeps no run from training: the fact is then None, and the log says so once.

    Args:
      readers: reads each of them, given the processes of the agent's runs. Default: those of this machine.
      timer: seconds on a clock that is never set.
      patience: how many seconds an answer may take.
    """

    def __init__(
        self,
        readers: Mapping[Probe, Reader] | None = None,
        timer: Callable[[], float] = time.monotonic,
        patience: float = 2.0,
    ) -> None:
        readers = machine_readers() if readers is None else readers
        self._readers = {probe: _PatientReader(probe, read, patience) for probe, read in readers.items()}
        self._timer = timer
        self._values: dict[Probe, tuple[float, Any]] = {}
        self._troubles: dict[Probe, str] = {}

    def read(self, wanted: Collection[Probe], own_pids: Collection[int]) -> MachineFacts:
        """Return what is wanted, not older than five seconds.

        Args:
          wanted: what is read; the rest is None.
          own_pids: the processes of the agent's runs. They and their children do not count as others.
        """
        found = {probe: self._value(probe, own_pids) for probe in wanted}
        return MachineFacts(
            on_battery=found.get(Probe.BATTERY),
            idle_secs=found.get(Probe.IDLE),
            others_load=found.get(Probe.LOAD),
            others_on_gpus=found.get(Probe.GPUS),
            temp=found.get(Probe.TEMP),
            gpu_memory=found.get(Probe.GPU_MEMORY),
        )

    def _value(self, probe: Probe, own_pids: Collection[int]) -> Any:
        now = self._timer()
        at, value = self._values.get(probe, (float("-inf"), None))
        if now - at < PROBE_SECS:
            return value
        reading = self._readers[probe](own_pids)
        if reading.trouble and reading.trouble != self._troubles.get(probe):
            log.warning("%s cannot be checked in full: %s", probe, reading.trouble, extra={"event": "when"})
        self._troubles[probe] = reading.trouble
        self._values[probe] = now, reading.value
        return reading.value


def machine_readers() -> dict[Probe, Reader]:
    """Return what reads each fact of this machine."""
    idle, load, gpus = IdleTime(), OthersLoad(), Gpus()
    return {
        Probe.BATTERY: lambda own: on_battery(),
        Probe.IDLE: lambda own: idle.read(),
        Probe.LOAD: lambda own: Reading(load.read(own)),
        Probe.GPUS: lambda own: others_on_gpus(gpus, own),
        Probe.TEMP: lambda own: temperature(gpus),
        Probe.GPU_MEMORY: lambda own: gpu_memory(gpus, own),
    }


def on_battery() -> Reading[bool]:
    """Return whether the machine runs on its battery. One without a battery does not."""
    battery = psutil.sensors_battery()
    if battery is None:
        return Reading(False)
    if battery.power_plugged is None:
        return Reading(None, "the kernel does not say whether the machine is on battery")
    return Reading(not battery.power_plugged)


def others_on_gpus(gpus: Gpus, own: Collection[int]) -> Reading[dict[int, tuple[int, ...]]]:
    """Return the compute processes on each GPU that are not of the agent's runs.

    NVML may name processes by the numbers that they have outside of a container. Those are not seen here, and left out.
    """
    try:
        found = gpus.processes()
    except NvmlError as error:
        return Reading(None, str(error))
    return Reading({gpu: tuple(pid for pid in pids if _is_others(pid, own)) for gpu, pids in found.items()})


def gpu_memory(gpus: Gpus, own: Collection[int]) -> Reading[dict[int, int]]:
    """Return the memory of each GPU that is free, or that the agent's runs have."""
    try:
        return Reading(gpus.available_memory(lambda pid: bool(set(own) & set(lineage(pid)))))
    except NvmlError as error:
        return Reading(None, str(error))


def temperature(gpus: Gpus) -> Reading[float]:
    """Return the temperature of the hottest processor or GPU, in °C."""
    sensors = psutil.sensors_temperatures()
    found = [each.current for name, every in sensors.items() if name.startswith(_SENSORS) for each in every]
    with contextlib.suppress(NvmlError):
        found += gpus.temperatures().values()
    found = [each for each in found if _LEAST_DEGREES <= each <= _MOST_DEGREES]
    return Reading(max(found)) if found else Reading(None, "no temperature of a processor or GPU can be read")


def _is_others(pid: int, own: Collection[int]) -> bool:
    """Return whether a process is here and not of the runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return not set(own) & set(lineage(pid))
