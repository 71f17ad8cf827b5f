"""Whether snapshots may stay on the GPUs."""

from __future__ import annotations

from trainerd.checkpoints.format.gpu_room import GPURoom

GPUS = {"GPU:0": 100, "GPU:1": 40}


def room(limits: dict[str, int | None], peaks: dict[str, int]) -> GPURoom:
    """Return the decision for GPUs with these limits, after the first snapshot."""
    found = GPURoom(limits.__getitem__, peaks.__getitem__)
    assert not found.has(GPUS)
    return found


def test_a_snapshot_stays_on_gpus_that_have_room_for_all_that_steps_write() -> None:
    peaks = {"GPU:0": 800, "GPU:1": 800}
    assert room({"GPU:0": 1000, "GPU:1": 1000}, peaks).has(GPUS)
    assert not room({"GPU:0": 950, "GPU:1": 1000}, peaks).has(GPUS)
    assert not room({"GPU:0": 1000, "GPU:1": None}, peaks).has(GPUS)


def test_a_gpu_that_is_nearly_full_has_no_room_any_more() -> None:
    peaks = {"GPU:0": 800, "GPU:1": 800}
    found = room({"GPU:0": 1000, "GPU:1": 1000}, peaks)
    assert found.has(GPUS)
    peaks["GPU:0"] = 940  # the snapshot is in it
    assert found.has(GPUS)
    peaks["GPU:0"] = 960
    assert not found.has(GPUS)
    peaks["GPU:0"] = 100
    assert not found.has(GPUS)
