"""What an Experiment costs: experiment."""

from __future__ import annotations

from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, best_compared, compared
from benchmarks.past import seconds_of
from benchmarks.plan import Plan
from benchmarks.rates import UNIT, folder_of, rates_of
from benchmarks.sides import Peer

PEER = "benchmarks.peers.experiment"


def experiment(plan: Plan) -> list[Figure]:
    """Training through an Experiment, and evaluating its checkpoints, beside the same by hand."""
    ours, loop = [], []
    for _ in range(plan.processes):
        rates = rates_of(plan, lambda: Peer("experiment", "experiment"), lambda: Peer("experiment", "loop"))
        ours += rates[0]
        loop += rates[1]
    evaluated, by_hand = [], []
    with folder_of() as folder:
        seconds_of(["-m", PEER, "train", str(folder)])
        count = len(list(folder.glob("model.ckpt-*.index")))
        for number in range(plan.evaluations):
            plan.say(f"round {number + 1} of {plan.evaluations}")
            by_hand.append(seconds_of(["-m", PEER, "script", str(folder)]))
            evaluated.append(seconds_of(["-m", PEER, "evaluate", str(folder)]))
            for path in folder.glob("*evaluations*.json"):
                path.unlink()
    what = f"evaluate {count} checkpoints of an Estimator / a script"
    return [
        compared(
            "experiment", "digits under an Experiment / MonitoredTrainingSession", UNIT, ours, loop, Bar(AT_LEAST, 0.95)
        ),
        best_compared("experiment", what, "s", evaluated, by_hand, Bar(AT_MOST, 1.2)),
    ]
