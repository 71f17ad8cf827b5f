"""The devices that train: which GPU of the machine each one is, and what is shown of it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from tests.waiting import wait_for
from trainerd.system.gpus import DeviceState, total_memory, watched

GIB = 1 << 30


class FakeError(Exception):
    """An error of NVML's."""


class FakeNvml:
    """NVML on a machine with GPUs, whose handles are their places on the bus; its methods are named as NVML's.

    Args:
      models: of the GPUs.
      split: the place of a GPU whose parts have UUIDs of their own (MIG).
    """

    def __init__(self, *models: str, split: int | None = None) -> None:
        self.models = models
        self.split = split
        self.lost = set[int]()
        self.others = list[str]()

    def nvmlInit(self) -> None:
        if not self.models:
            raise FakeError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.models)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= len(self.models):
            raise FakeError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return {"GPU-a": 0, "GPU-b": 1, "MIG-a": 100}[uuid]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[str]:
        return ["ours", *self.others]

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.models[handle]

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        if self.split is None:
            raise FakeError("Not Supported")
        return [int(handle == self.split), 0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        if handle in self.lost:
            raise FakeError("GPU is lost")
        return SimpleNamespace(used=(handle + 1) * GIB, total=80 * GIB)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        if handle in self.lost or handle >= 100:
            raise FakeError("Not Supported")
        return SimpleNamespace(gpu=97 - handle, memory=50)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """NVML on a machine with three equal GPUs, all of which this process sees."""
    found = FakeNvml("H100", "H100", "H100")
    monkeypatch.setitem(sys.modules, "pynvml", found)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    return found


def shown(devices: Mapping[str, int | None]) -> list[str]:
    """Return the first lines of devices."""
    found = list[list[DeviceState]]()
    with watched(devices, found.append, PEAKS.__getitem__):
        return [str(device) for device in found[0]]


BOTH = {"GPU:0": 0, "GPU:1": 1}
PEAKS = {"GPU:0": 7, "GPU:1": 8}
FIRST, SECOND, THIRD = (
    "1.0 GiB of 80.0 GiB, 97 % busy",
    "2.0 GiB of 80.0 GiB, 96 % busy",
    "3.0 GiB of 80.0 GiB, 95 % busy",
)


@pytest.mark.parametrize(
    ("visible", "first", "second"),
    [
        (None, FIRST, SECOND),
        ("2,0", THIRD, FIRST),
        (" 1 , GPU-a", SECOND, FIRST),
        ("MIG-a,2", "101.0 GiB of 80.0 GiB", THIRD),
        ("GPU-unknown,9", "", ""),
        ("1", SECOND, ""),
        ("-1,,", "", ""),
    ],
)
def test_a_gpu_is_the_one_that_cuda_shows_the_process(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str | None, first: str, second: str
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    wanted = [f"{name}: {words}" if words else name for name, words in zip(BOTH, (first, second), strict=True)]
    assert shown(BOTH) == wanted


def test_numbers_of_unlike_gpus_are_those_of_the_bus_if_cuda_counts_so(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.models = ("T4", "H100")
    assert shown(BOTH) == ["GPU:0", "GPU:1"]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert shown(BOTH) == [f"GPU:0: {FIRST}", f"GPU:1: {SECOND}"]
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert shown({"GPU:0": 0}) == [f"GPU:0: {SECOND}"]


def test_a_gpu_that_is_split_has_no_figures_of_the_whole(nvml: FakeNvml) -> None:
    nvml.split = 0
    assert shown(BOTH) == ["GPU:0", f"GPU:1: {SECOND}"]


def test_without_a_gpu_nvml_is_not_asked(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with caplog.at_level(logging.DEBUG):
        assert shown({"CPU:0": None, "CPU:1": None}) == ["CPU:0", "CPU:1"] and shown({}) == []
    assert not caplog.records


@pytest.mark.parametrize(
    ("module", "words"),
    [(None, "pip install 'nvidia-ml-py>=12'"), (FakeNvml(), "Driver Not Loaded"), (SimpleNamespace(), "nvmlInit")],
)
def test_without_the_package_or_the_driver_there_are_names_and_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, module: object, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with caplog.at_level(logging.INFO):
        assert shown(BOTH) == ["GPU:0", "GPU:1"]
    [record] = caplog.records
    assert words in record.getMessage() and record.levelno == logging.INFO


def test_a_gpu_that_fails_later_loses_its_figures_alone(nvml: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    found = list[list[DeviceState]]()
    with watched(BOTH, found.append, PEAKS.__getitem__):
        nvml.lost.add(0)
        wait_for(lambda: len(found) > 1, "the next look")
    assert found[0] == [DeviceState("GPU:0", GIB, 80 * GIB, 0.97, 7), DeviceState("GPU:1", 2 * GIB, 80 * GIB, 0.96, 8)]
    assert found[-1] == [DeviceState("GPU:0", needed_bytes=7), DeviceState("GPU:1", 2 * GIB, 80 * GIB, 0.96, 8)]
    assert not caplog.records


def test_the_memory_of_a_gpu_is_known_if_no_other_process_uses_it(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-a")
    assert total_memory(0) == total_memory(1) == 80 * GIB and total_memory(2) is None
    nvml.others.append("another")
    assert total_memory(0) is None
