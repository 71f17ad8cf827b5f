"""The schedule of an Experiment that a task of a cluster runs by default."""

from __future__ import annotations

from typing import Any

from trainerd.programs.estimator.run_config import TaskType

_SCHEDULES = {
    TaskType.MASTER: "train_and_evaluate",
    TaskType.CHIEF: "train_and_evaluate",
    TaskType.PS: "run_std_server",
    TaskType.WORKER: "train",
    TaskType.EVALUATOR: "continuous_eval",
}


def default_schedule(config: Any) -> str:
    """Return the schedule of the task that these settings name. Without a second task in the cluster, one does all.

    Raises:
      ValueError: they name none that there is.
    """
    task, cluster = getattr(config, "task_type", None), getattr(config, "cluster_spec", None)
    count = sum(len(cluster.job_tasks(job)) for job in cluster.jobs) if cluster else 0
    if count <= 1 and task != TaskType.EVALUATOR:
        return "train_and_evaluate"
    if not task:
        raise ValueError("Must specify a schedule")
    if task not in _SCHEDULES:
        raise ValueError(f"No default schedule for task type: {task}")
    return _SCHEDULES[task]
