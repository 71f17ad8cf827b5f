"""The server of a task of a cluster."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def is_wanted(config: Any) -> bool:
    """Return whether a training of these settings needs a server: it is one of several tasks."""
    environment = getattr(config, "environment", "cloud")
    is_local = environment in ("local", "google")
    has_cluster = bool(getattr(config, "cluster_spec", None)) and bool(getattr(config, "master", None))
    if has_cluster and environment == "local":
        tf.compat.v1.logging.warning(
            "ClusterSpec and master are provided, but environment is set to 'local'. Set environment to 'cloud' if "
            "you intend to use the distributed runtime."
        )
    return has_cluster and not is_local


def start_to_train(config: Any) -> None:
    """Start the server of a task that trains. The only task of a cluster needs none.

    Raises:
      ValueError: the settings have no cluster.
    """
    cluster = config.cluster_spec.as_dict()
    if not config.master and sum(len(addresses) for addresses in cluster.values()) == 1:
        tf.compat.v1.logging.info("Skip starting Tensorflow server as there is only one node in the cluster.")
    else:
        start(config)


def start(config: Any) -> Any:
    """Start the server.

    Raises:
      ValueError: the settings have no cluster.
    """
    names = ("cluster_spec", "task_type", "master")
    if not all(getattr(config, name, None) for name in names) or getattr(config, "task_id", None) is None:
        raise ValueError(
            "Could not start server; be sure to specify cluster_spec, task_type, master, and task in RunConfig or set "
            "the TF_CONFIG environment variable."
        )
    protocol = getattr(config, "protocol", None)
    server = tf.distribute.Server(
        config.cluster_spec,
        job_name=config.task_type,
        task_index=config.task_id,
        config=getattr(config, "tf_config", None) or getattr(config, "session_config", None),
        start=False,
        **({"protocol": protocol} if protocol else {}),
    )
    server.start()
    return server
