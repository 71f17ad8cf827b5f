"""The settings of an Estimator, as `tf.estimator.RunConfig` had them. `TF_CONFIG` names this task of a cluster."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from trainerd.programs.estimator.arguments import names_of_arguments

tf1 = tf.compat.v1

_BOTH = "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set."
_VARIABLE = "TF_CONFIG"


class TaskType:
    """The types of the tasks in a cluster."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"
    CHIEF = "chief"
    EVALUATOR = "evaluator"


_DEFAULT = object()  # the 600 seconds between checkpoints, if neither seconds nor steps are given


class _Setting:
    """A setting that `RunConfig` has, read-only. A subclass may define a property of its own in its place."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, config: Any, owner: type) -> Any:
        return self if config is None else getattr(config, f"_{self._name}")

    def __set__(self, config: Any, value: Any) -> None:
        raise AttributeError(f"{self._name} of a RunConfig cannot be set: use `replace({self._name}=...)`.")


class RunConfig:
    """The settings of a run.

    Args:
      model_dir: where checkpoints, curves and exports go.
      tf_random_seed: the seed of each graph.
      save_summary_steps: steps between summaries. 0 or None: none.
      save_checkpoints_steps, save_checkpoints_secs: between checkpoints. Default: 600 seconds. None: not by this.
      session_config: a ConfigProto for the sessions. Default: with soft placement; of a cluster, TensorFlow's, which
        sees the parameter servers and this task alone.
      keep_checkpoint_max: how many of the last checkpoints are kept. 0 or None: all.
      keep_checkpoint_every_n_hours: hours between checkpoints that are kept forever.
      log_step_count_steps: steps between two log lines with the loss, and two points of the curve of the rate.
      session_creation_timeout_secs: seconds for which a worker waits for the chief.
      checkpoint_save_graph_def: whether the graph is written with each checkpoint.
      train_distribute, eval_distribute, experimental_distribute: as TensorFlow's. A strategy is refused:
        between-graph replication, by TF_CONFIG, is what an Estimator here does.
      device_fn: places each op; called with it. Default: variables on the parameter servers.
      protocol: of the server of a cluster.
      experimental_max_worker_delay_secs: for how long a worker waits before it trains, at most. Default: 60.

    Attributes:
      cluster_spec: a `tf.train.ClusterSpec` of TF_CONFIG; empty without a cluster.
      task_type, task_id: which task this process is.
      master, evaluation_master: the address of its server; "" for this process.
      is_chief: whether it initializes, saves and writes summaries.
      num_ps_replicas, num_worker_replicas, global_id_in_cluster: of the cluster.
      service: the part "service" of TF_CONFIG.

    Raises:
      ValueError: a setting, or TF_CONFIG, is wrong.
    """

    model_dir = _Setting()
    tf_random_seed = _Setting()
    save_summary_steps = _Setting()
    save_checkpoints_steps = _Setting()
    save_checkpoints_secs = _Setting()
    session_config = _Setting()
    keep_checkpoint_max = _Setting()
    keep_checkpoint_every_n_hours = _Setting()
    log_step_count_steps = _Setting()
    train_distribute = _Setting()
    device_fn = _Setting()
    protocol = _Setting()
    eval_distribute = _Setting()
    experimental_distribute = _Setting()
    experimental_max_worker_delay_secs = _Setting()
    session_creation_timeout_secs = _Setting()
    checkpoint_save_graph_def = _Setting()
    cluster_spec = _Setting()
    task_type = _Setting()
    task_id = _Setting()
    master = _Setting()
    evaluation_master = _Setting()
    is_chief = _Setting()
    num_ps_replicas = _Setting()
    num_worker_replicas = _Setting()
    global_id_in_cluster = _Setting()
    service = _Setting()

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: Any = _DEFAULT,
        save_checkpoints_secs: Any = _DEFAULT,
        session_config: tf.compat.v1.ConfigProto | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: tf.distribute.Strategy | None = None,
        device_fn: Callable[[tf.Operation], str | None] | None = None,
        protocol: str | None = None,
        eval_distribute: tf.distribute.Strategy | None = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: float = 7200,
        checkpoint_save_graph_def: bool = True,
    ) -> None:
        if save_checkpoints_steps is _DEFAULT and save_checkpoints_secs is _DEFAULT:
            save_checkpoints_steps, save_checkpoints_secs = None, 600
        elif save_checkpoints_secs is _DEFAULT:
            save_checkpoints_secs = None
        elif save_checkpoints_steps is _DEFAULT:
            save_checkpoints_steps = None
        elif save_checkpoints_steps is not None and save_checkpoints_secs is not None:
            raise ValueError(_BOTH)
        found = _tf_config()
        self._model_dir = _model_dir(model_dir, found.get("model_dir"))
        self._tf_random_seed = tf_random_seed
        self._save_summary_steps = save_summary_steps
        self._save_checkpoints_steps = save_checkpoints_steps
        self._save_checkpoints_secs = save_checkpoints_secs
        self._session_config = session_config
        self._keep_checkpoint_max = keep_checkpoint_max
        self._keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self._log_step_count_steps = log_step_count_steps
        self._train_distribute = train_distribute
        self._eval_distribute = eval_distribute
        self._experimental_distribute = experimental_distribute
        self._device_fn = device_fn
        self._protocol = protocol
        self._experimental_max_worker_delay_secs = experimental_max_worker_delay_secs
        self._session_creation_timeout_secs = session_creation_timeout_secs
        self._checkpoint_save_graph_def = checkpoint_save_graph_def
        self.require_valid()
        self._take_task(found)
        if session_config is None and found.get("cluster"):
            self._session_config = _session_config_of(self._task_type, self._task_id)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with these settings changed.

        Raises:
          ValueError: there is no such setting, or it is wrong.
        """
        found = copy.copy(self)
        for name, value in changes.items():
            if name not in _REPLACEABLE:
                raise ValueError(f"Replacing {name} is not supported. Allowed properties are {sorted(_REPLACEABLE)}.")
            setattr(found, f"_{name}", value)
        steps, secs = "save_checkpoints_steps", "save_checkpoints_secs"
        if changes.get(steps) is not None and changes.get(secs) is not None:
            raise ValueError(_BOTH)
        for name, other in ((steps, secs), (secs, steps)):
            if changes.get(name) is not None:
                setattr(found, f"_{other}", None)
        found.require_valid()
        return found

    def require_valid(self) -> None:
        """Raise ValueError if a setting is wrong."""
        for name, is_valid, message in _RULES:
            value = getattr(self, name)
            if value is not None and not is_valid(value):
                raise ValueError(message)
        for name in ("train_distribute", "eval_distribute", "experimental_distribute"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is not supported: an Estimator trains a TensorFlow 1 graph, on one machine or by "
                    "TF_CONFIG. Under a tf.distribute.Strategy train a trainerd.Job or a KerasJob."
                )

    def _take_task(self, found: Mapping[str, Any]) -> None:
        """Take the task of this process, and its cluster."""
        task = found.get("task") or {}
        self._service = found.get("service")
        if self._service is not None and not isinstance(self._service, dict):
            raise TypeError(f'If "service" is set in TF_CONFIG, it must be a dict. Given {type(self._service)}')
        self._cluster_spec = tf.train.ClusterSpec(found.get("cluster") or {})
        cluster: dict[str, list[str]] = self._cluster_spec.as_dict()
        if not cluster:
            self._task_type, self._task_id = _checked_alone(task)
            self._master = found.get("session_master", "")
            self._evaluation_master = found.get("eval_session_master", "")
            self._is_chief = True
            self._num_ps_replicas, self._num_worker_replicas = 0, 1
            self._global_id_in_cluster: int | None = 0
            return
        chief = TaskType.MASTER if TaskType.MASTER in cluster else TaskType.CHIEF
        self._task_type, self._task_id = _checked_task(cluster, task, chief)
        self._num_ps_replicas = len(cluster.get(TaskType.PS, []))
        self._num_worker_replicas = len(cluster.get(TaskType.WORKER, [])) + len(cluster[chief])
        self._is_chief = self._task_type == chief
        self._evaluation_master, self._global_id_in_cluster = "", None
        if self._task_type == TaskType.EVALUATOR:
            self._master, self._evaluation_master = "", found.get("eval_session_master", "")
            self._cluster_spec = tf.train.ClusterSpec({})
            self._num_ps_replicas = self._num_worker_replicas = 0
            return
        is_alone = sum(len(addresses) for addresses in cluster.values()) == 1
        address = "" if is_alone else f"grpc://{cluster[self._task_type][self._task_id]}"
        self._master = found.get("session_master", address)
        self._global_id_in_cluster = _global_id(cluster, self._task_type, self._task_id, chief)


_REPLACEABLE = names_of_arguments(RunConfig)

_RULES: list[tuple[str, Any, str]] = [
    ("model_dir", bool, "model_dir should be non-empty"),
    ("save_summary_steps", lambda value: value >= 0, "save_summary_steps should be >= 0"),
    ("save_checkpoints_steps", lambda value: value >= 0, "save_checkpoints_steps should be >= 0"),
    ("save_checkpoints_secs", lambda value: value >= 0, "save_checkpoints_secs should be >= 0"),
    (
        "session_config",
        lambda value: isinstance(value, tf1.ConfigProto),
        "session_config must be instance of ConfigProto",
    ),
    ("keep_checkpoint_max", lambda value: value >= 0, "keep_checkpoint_max should be >= 0"),
    ("keep_checkpoint_every_n_hours", lambda value: value > 0, "keep_checkpoint_every_n_hours should be > 0"),
    ("log_step_count_steps", lambda value: value > 0, "log_step_count_steps should be > 0"),
    ("tf_random_seed", lambda value: isinstance(value, int), "tf_random_seed must be integer."),
    ("session_creation_timeout_secs", lambda value: value > 0, "session_creation_timeout_secs should be > 0"),
    (
        "device_fn",
        lambda value: callable(value) and names_of_arguments(value) == {"op"},
        'device_fn must be callable with exactly one argument "op".',
    ),
    (
        "experimental_max_worker_delay_secs",
        lambda value: isinstance(value, int),
        "experimental_max_worker_delay_secs must be an integer if set.",
    ),
    ("protocol", lambda value: value in ("grpc", "grpc+verbs"), "protocol should be grpc or grpc+verbs"),
]


def _tf_config() -> dict[str, Any]:
    """Return the content of the environment variable TF_CONFIG; empty without one."""
    text = os.environ.get(_VARIABLE) or "{}"
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{_VARIABLE} is not JSON: {error}. It is {text[:200]!r}.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{_VARIABLE} must be a JSON object, and is {text[:200]!r}.")
    return found


def _model_dir(given: Any, of_cluster: str | None) -> str | None:
    """Return the folder that the program names, or that TF_CONFIG names."""
    path = os.fspath(given) if given is not None else None
    if of_cluster is not None:
        if not of_cluster:
            raise ValueError("model_dir in TF_CONFIG should be non-empty.")
        if path is not None and path != of_cluster:
            raise ValueError(
                "`model_dir` provided in RunConfig construct, if set, must have the same value as the model_dir in "
                f'TF_CONFIG. model_dir: {path}\nTF_CONFIG["model_dir"]: {of_cluster}.\n'
            )
        return of_cluster
    return path


def _session_config_of(task_type: str, task_id: int) -> Any:
    """Return TensorFlow's ConfigProto for a task of a cluster; None for one that does not train.

    A session sees the parameter servers and its own task alone: a worker that is missing stops no other.
    """
    others = {
        TaskType.MASTER: ["/job:master"],
        TaskType.CHIEF: ["/job:chief"],
        TaskType.WORKER: [f"/job:worker/task:{task_id}"],
        TaskType.PS: ["/job:worker", "/job:chief", "/job:master"],
    }
    if task_type not in others:
        return None
    return default_session_config(["/job:ps", *others[task_type]])


def default_session_config(device_filters: Sequence[str] = ()) -> Any:
    """Return TensorFlow's ConfigProto for the session of an estimator.

    Args:
      device_filters: the jobs and tasks of a cluster that the session sees; empty for all.
    """
    config = tf1.ConfigProto(allow_soft_placement=True, device_filters=device_filters)
    rewrites = config.graph_options.rewrite_options
    rewrites.meta_optimizer_iterations = rewrites.ONE
    return config


def _checked_alone(task: Mapping[str, Any]) -> tuple[str, int]:
    """Return the task of a process without a cluster: there is only one."""
    kind, number = task.get("type", TaskType.WORKER), int(task.get("index", 0))
    if kind != TaskType.WORKER:
        raise ValueError(f'If "cluster" is not set in TF_CONFIG, task type must be WORKER. It is {kind!r}.')
    if number != 0:
        raise ValueError(f'If "cluster" is not set in TF_CONFIG, task index must be 0. It is {number}.')
    return kind, number


def _checked_task(cluster: Mapping[str, list[str]], task: Mapping[str, Any], chief: str) -> tuple[str, int]:
    if chief == TaskType.MASTER and TaskType.CHIEF in cluster:
        raise ValueError("If `master` node exists in `cluster`, job `chief` is not supported.")
    if chief not in cluster:
        raise ValueError(f'If "cluster" is set in TF_CONFIG, it must have one "{chief}" node.')
    if len(cluster[chief]) > 1:
        raise ValueError(f'The "cluster" in TF_CONFIG must have only one "{chief}" node.')
    kind, number = task.get("type"), task.get("index")
    if not kind:
        raise ValueError('If "cluster" is set in TF_CONFIG, task type must be set.')
    if number is None:
        raise ValueError('If "cluster" is set in TF_CONFIG, task index must be set.')
    number = int(number)
    if number < 0:
        raise ValueError("Task index must be non-negative number.")
    if kind == TaskType.EVALUATOR:
        if chief == TaskType.MASTER:
            raise ValueError("If `master` node exists in `cluster`, task_type `evaluator` is not supported.")
        return kind, number
    note = "\n\nNote that these values may be coming from the TF_CONFIG environment variable."
    if kind not in cluster:
        raise ValueError(f"{kind} is not a valid task_type in the cluster_spec:\n{cluster}{note}")
    if number >= len(cluster[kind]):
        raise ValueError(f"{number} is not a valid task_id for task_type {kind} in the cluster_spec:\n{cluster}{note}")
    return kind, number


def _global_id(cluster: Mapping[str, list[str]], task_type: str, task_id: int, chief: str) -> int:
    """Return the number of this task among all: the chief is 0, then the others by name, and parameter servers last."""
    others = sorted(kind for kind in cluster if kind not in (chief, TaskType.PS))
    before = 0
    for kind in [chief, *others, TaskType.PS]:
        if kind == task_type:
            break
        before += len(cluster.get(kind, []))
    return before + task_id
