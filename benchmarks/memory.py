"""What the memory tier costs, and what a killed process loses with it."""

from __future__ import annotations

import json
import random
import signal
import time

from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, alone, compared, median
from benchmarks.plan import Plan
from benchmarks.processes import BenchmarkError
from benchmarks.rates import UNIT, folder_of, rates_of_settings
from benchmarks.sides import Trainer, start, wait_for_first_step, write_config

DIGITS = "trainerd.examples.digits:job"
OFF = "[checkpoint]\nmemory_overhead = 0\n"
_SHORTEST, _LONGEST = 4.0, 10.0  # seconds from the first step to the kill


def memory(plan: Plan) -> list[Figure]:
    """Steps per second with the memory tier, the default, and without; and the seconds that a SIGKILL loses."""
    return [_cost(plan, "tiny", "benchmarks.jobs:tiny"), _cost(plan, "digits", DIGITS), _lost(plan)]


def _cost(plan: Plan, name: str, entry: str) -> Figure:
    with folder_of() as folder:
        trainer = Trainer(entry, folder)
        on, off = rates_of_settings(plan, trainer, lambda: trainer.change(""), lambda: trainer.change(OFF))
    return compared("memory", f"{name} step, memory tier / without", UNIT, on, off, Bar(AT_LEAST, 0.99))


def _lost(plan: Plan) -> Figure:
    """Kill the digits job at random moments. What is lost is the age of the state in memory."""
    chance, lost = random.Random(1), list[float]()
    with folder_of() as folder:
        config = write_config(folder, DIGITS)
        for number in range(plan.starts):
            plan.say(f"kill {number + 1} of {plan.starts}")
            with start(config) as trainer:
                wait_for_first_step(trainer)
                time.sleep(chance.uniform(_SHORTEST, _LONGEST))
                trainer.send(signal.SIGKILL)
                killed_at = time.time()
            tier = json.loads((folder / "run" / "state.json").read_bytes())["memory_tier"]
            if tier["step"] is None:
                raise BenchmarkError(f"nothing was saved to memory: {tier['off']}")
            lost.append(killed_at - tier["at"])
    return alone("memory", "digits: lost by a SIGKILL", "s", median(lost), lost, Bar(AT_MOST, 2.0))
