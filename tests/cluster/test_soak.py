"""Random faults of random workers, one after the other: the run ends as one that had none.

`make torture` has an hour of them.
"""

from __future__ import annotations

import random
import signal
import time

from tests.cluster.conftest import Cluster
from tests.process.trainers import Trainer
from tests.torture.conftest import Tell, amount
from tests.waiting import wait_for
from trainerd.rundir.state import Phase

COUNT = 2
STEPS_PER_FAULT = 400
LIFE_SECS = 600.0
FAULTS = ("kill", "kill", "pause", "stop", "both", "save")


def test_random_faults_of_random_workers_change_nothing(cluster: Cluster, record_property: Tell) -> None:
    times = amount(2, 300)
    steps, chance = STEPS_PER_FAULT * times, random.Random(times)
    cluster.configure("own", COUNT, f"max_steps = {steps}\n[checkpoint]\nsave_model_steps = 97\nkeep_last = 3\n")
    cluster.start(COUNT, logdir="whole")
    assert cluster.end(LIFE_SECS) == [0] * COUNT, cluster.text
    done = hit = 0
    while True:
        cluster.start(COUNT)
        began = chance.choice([Phase.GATHERING, Phase.STARTING, Phase.TRAINING, Phase.TRAINING, Phase.TRAINING])
        chief = cluster.workers[0]
        wait_for_phases(chief, {began, Phase.TRAINING, Phase.FINISHED})
        # A signal that comes before they hear signals is none of ours.
        wait_for(lambda: all(not each.is_alive() or each.state.pid for each in cluster.workers), "their states")
        time.sleep(chance.uniform(0, 0.8))
        fault = "save"
        while done < times and fault == "save":  # a save ends nothing, so another fault follows it
            fault = chance.choice(FAULTS)
            hit += inflict(cluster, fault, chance.randrange(COUNT))
            done += 1
        codes = end(cluster)
        assert set(codes) <= {0, 76, -signal.SIGKILL, -signal.SIGALRM}, cluster.text
        if chief.state.phase is Phase.FINISHED:
            break
    assert hit, "the run was over before each fault"
    record_property("faults of random workers", hit)
    assert cluster.values(steps) == cluster.values(steps, "whole")


def wait_for_phases(worker: Trainer, phases: set[Phase]) -> None:
    """Wait until a worker is in one of these phases, or has ended."""
    wait_for(lambda: not worker.is_alive() or worker.state.phase in phases, f"one of {phases}", LIFE_SECS)


def end(cluster: Cluster) -> list[int]:
    """Wait until all have ended. One that waits for another that has ended is told to end."""
    reported = list[Trainer]()

    def have_ended() -> bool:
        waiting = [worker for worker in cluster.workers if worker.is_alive()]
        if len(waiting) < len(cluster.workers):
            for worker in waiting:
                if worker.state.phase in (Phase.GATHERING, Phase.STARTING) and worker not in reported:
                    reported.append(worker)
                    worker.signal(signal.SIGTERM)
        return not waiting

    wait_for(have_ended, "the end of all workers", LIFE_SECS)
    return cluster.end()


def inflict(cluster: Cluster, fault: str, rank: int) -> bool:
    """Inflict one fault, after which all workers end, but for `save`. Return whether the run still ran."""
    victim = cluster.workers[rank]
    if not all(worker.is_alive() for worker in cluster.workers):
        return False
    if fault == "kill":
        victim.signal(signal.SIGKILL)
    elif fault == "stop":
        victim.signal(signal.SIGSTOP)
        others = [worker for worker in cluster.workers if worker is not victim]
        wait_for(lambda: not any(worker.is_alive() for worker in others), "the end of the others", LIFE_SECS)
        victim.signal(signal.SIGCONT)
    elif fault == "save":
        victim.signal(signal.SIGUSR1)
    for worker in cluster.workers if fault == "both" else [victim] if fault == "pause" else []:
        worker.signal(signal.SIGTERM)
    return True
