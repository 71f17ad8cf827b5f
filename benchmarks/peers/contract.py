"""What every peer does: get ready, then measure on request, in JSON on standard output, one object a line.

    peer   → {"ready": true, ...}          built, compiled and warm; with what the other side needs to know
    parent → 2.0                            on standard input: measure for so many seconds; `2.0 1` is for its
                                            second setting
    peer   → {"steps": 5400, "seconds": 2.0003}

Between requests it waits for its input, and so takes nothing from whoever is measured then.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

WARM_UP_SECONDS = 0.5
Measure = Callable[[float], tuple[int, float]]


def serve(*settings: Measure, **facts: Any) -> None:
    """Warm up each setting, then measure as often as it is asked for."""
    for measure in settings:
        measure(WARM_UP_SECONDS)
    say(ready=True, **facts)
    for line in sys.stdin:
        wanted, _, setting = line.partition(" ")
        steps, seconds = settings[int(setting or 0)](float(wanted))
        say(steps=steps, seconds=seconds)


def stepping(step: Callable[[], object]) -> Measure:
    """Measure a step by calling it until the time is over."""

    def measure(seconds: float) -> tuple[int, float]:
        steps, begun = 0, time.perf_counter()
        end = begun + seconds
        while (now := time.perf_counter()) < end:
            step()
            steps += 1
        return steps, now - begun

    return measure


def guessing(run: Callable[[int], float], first: int, multiple: int = 1) -> Measure:
    """Measure something that needs its number of steps beforehand: the last rate says how many fill the time.

    Args:
      run: runs so many steps; the seconds that they took.
      first: the first guess, which is run twice: the first time compiles.
      multiple: the steps are a multiple of it.
    """
    run(first)
    rate = first / run(first)

    def measure(seconds: float) -> tuple[int, float]:
        nonlocal rate
        steps = max(1, round(seconds * rate / multiple)) * multiple
        taken = run(steps)
        rate = steps / taken
        return steps, taken

    return measure


def say(**data: Any) -> None:
    """One object to the parent."""
    print(json.dumps(data), flush=True)
