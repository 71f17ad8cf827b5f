"""The minima of drawn curves: noise, plateaus, steps, spikes, NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from trainerd.loop.minima.valleys import Valleys, Verdict

Curve = NDArray[np.float64]
SMOOTHING, PROMINENCE = 20, 0.1
STEPS = np.arange(4000, dtype=np.float64)


def minima(curve: Curve, every: int = 10, *, smoothing: int = SMOOTHING) -> list[int]:
    """The steps of the minima that are found, looking at each so many steps."""
    valleys, found = Valleys(), list[int]()
    for step in range(every, len(curve) + 1, every):
        before = valleys = valleys.seen(curve[step - every : step], smoothing)
        valleys, verdict = valleys.looked_at(step, smoothing=smoothing, prominence=PROMINENCE)
        if verdict is Verdict.CONFIRMED:
            found.append(before.lowest_step)
    return found


def noise(scale: float, seed: int = 0, size: int = len(STEPS)) -> Curve:
    return np.random.default_rng(seed).normal(0.0, scale, size)


def waves(depth: float = 0.5, length: float = 1000.0) -> Curve:
    """Minima at a half, one and a half, … of the length."""
    return 2.0 + depth * np.cos(2 * np.pi * STEPS / length)


@pytest.mark.parametrize("scale", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("every", [1, 10, 37])
def test_each_valley_gives_its_minimum(scale: float, every: int) -> None:
    found = minima(waves() + noise(scale), every)
    assert len(found) == 4
    for number, step in enumerate(found):
        assert abs(step - (500 + 1000 * number) - SMOOTHING) <= 60 + 300 * scale + every


@pytest.mark.parametrize(
    ("name", "curve"),
    [
        ("it falls all the time", 5.0 * np.exp(-STEPS / 800)),
        ("it falls, with noise", 5.0 * np.exp(-STEPS / 800) + noise(0.05)),
        ("it falls towards nothing", np.exp(-STEPS / 200)),
        ("it is constant", np.full(4000, 0.7)),
        ("it is zero", np.zeros(4000)),
        ("it rises all the time", 1.0 + STEPS / 1000),
        ("it falls in steps", 4.0 - STEPS // 1000),
        ("it falls to a plateau", np.where(STEPS < 1000, 3.0 - STEPS / 500, 1.0) + noise(0.02)),
        ("it rises less than the prominence", np.where(STEPS < 2000, 1.0, 1.08)),
        ("negative, and falls", -STEPS / 1000),
        ("all NaN", np.full(4000, math.nan)),
    ],
)
def test_these_have_no_minimum(name: str, curve: Curve) -> None:
    found = minima(curve)
    if name == "it rises all the time":
        assert len(found) == 1 and found[0] <= 4 * SMOOTHING  # where it began is its lowest
    else:
        assert found == []


def test_noise_alone_is_no_valley() -> None:
    """The false alarms in four million steps of noise around a constant, as large as half of it."""
    assert sum(len(minima(1.0 + noise(0.5, seed, 400_000), 50)) for seed in range(10)) == 0


@pytest.mark.parametrize("height", [3.0, 1000.0])
def test_a_spike_is_no_end_of_a_valley(height: float) -> None:
    curve = waves(0.0)
    curve[2000] = height
    assert minima(curve) == []


def test_what_is_not_finite_is_passed_over() -> None:
    curve = waves() + noise(0.05)
    broken = curve.copy()
    broken[::7], broken[3::11] = math.nan, math.inf
    assert len(minima(broken)) == len(minima(curve)) == 4


def test_a_negative_loss_has_minima_too() -> None:
    assert len(minima(waves(0.3) - 10.0)) == 0, "a tenth of ten is more than the waves"
    assert len(minima(waves(0.6) - 10.0)) == 4


def test_the_lowest_boundary_of_a_valley_is_the_one_that_is_kept() -> None:
    """Of all that were looked at in the valley none was lower."""
    curve, valleys = waves() + noise(0.2), Valleys()
    looked: dict[int, list[tuple[float, int]]] = {}
    for step in range(10, len(curve) + 1, 10):
        valleys = valleys.seen(curve[step - 10 : step], SMOOTHING)
        before = valleys
        valleys, verdict = valleys.looked_at(step, smoothing=SMOOTHING, prominence=PROMINENCE)
        if before.highest is None and step >= 3 * SMOOTHING:
            looked.setdefault(before.valley, []).append((before.average, step))
        if verdict is Verdict.LOWEST:
            looked.setdefault(valleys.valley, []).append((valleys.average, step))
        if verdict is Verdict.CONFIRMED:
            assert (before.lowest, before.lowest_step) == min(looked[before.valley])


def test_nothing_is_said_before_the_smoothed_loss_means_something() -> None:
    assert minima(np.concatenate([np.linspace(0, 1, 2 * SMOOTHING), np.ones(10)]), 1) == []


@pytest.mark.parametrize("cut", [10, 230, 520, 700, 1010, 3990])
def test_it_resumes_after_a_pause_as_if_there_had_been_none(cut: int) -> None:
    curve = waves() + noise(0.3)

    def follow(pause: Callable[[Valleys], Valleys]) -> list[Valleys]:
        valleys, seen = Valleys(), list[Valleys]()
        for step in range(10, len(curve) + 1, 10):
            valleys, _ = valleys.seen(curve[step - 10 : step], SMOOTHING).looked_at(
                step, smoothing=SMOOTHING, prominence=PROMINENCE
            )
            valleys = pause(valleys) if step == cut else valleys
            seen.append(valleys)
        return seen

    through_json = lambda valleys: msgspec.convert(json.loads(json.dumps(asdict(valleys))), Valleys)  # noqa: E731
    assert follow(through_json) == follow(lambda valleys: valleys)


def test_how_the_steps_are_cut_into_boundaries_changes_next_to_nothing() -> None:
    curve = waves() + noise(0.3)
    whole = Valleys().seen(curve, SMOOTHING)
    parts = Valleys()
    for start in range(0, 4000, 13):
        parts = parts.seen(curve[start : start + 13], SMOOTHING)
    assert math.isclose(whole.average, parts.average, rel_tol=1e-12) and whole.count == parts.count
