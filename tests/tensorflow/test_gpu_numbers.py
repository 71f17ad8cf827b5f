"""The numbers of GPUs, on a machine whose GPUs are made up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from trainerd.sessions.tf2.devices import gpu_numbers


def test_gpus_that_are_hidden_or_split_are_numbered_as_cuda_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_numbers() == {}
    gpus = [SimpleNamespace(name=f"/physical_device:GPU:{number}", device_type="GPU") for number in range(4)]
    parts = [SimpleNamespace(memory_limit=1024)] * 2
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [gpus[3], gpus[1], gpus[2]])
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda gpu: parts if gpu is gpus[2] else None)
    assert gpu_numbers() == {"GPU:0": 1, "GPU:1": 2, "GPU:2": 2, "GPU:3": 3}
