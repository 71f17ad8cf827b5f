"""Objects that only note what they are called with, and the objects that a program makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import pytest
import tensorflow as tf

import trainerd
from trainerd.programs.estimator.estimator import Estimator
from trainerd.programs.estimator.run_config import RunConfig

tf1 = tf.compat.v1

Made = TypeVar("Made")

CLUSTER = {"ps": ["host1:2222", "host2:2222"], "worker": ["host3:2222", "host4:2222"], "chief": ["host5:2222"]}


def instances(monkeypatch: pytest.MonkeyPatch, kind: type[Made]) -> list[Made]:
    """All objects of this class that are made from now on, in their order."""
    made: list[Made] = []
    init = kind.__init__

    def noted(self: Made, *arguments: Any, **options: Any) -> None:
        made.append(self)
        init(self, *arguments, **options)

    monkeypatch.setattr(kind, "__init__", noted)
    return made


class Noting:
    """Notes what it is called with."""

    def __init__(self, folder: Path, result: Any = None, config: Any = None, evaluations: int = 5) -> None:
        self._folder = folder
        self._result = result
        self._given_config = config or RunConfig()
        self._most = evaluations
        self.trained: list[dict[str, Any]] = []
        self.evaluated: list[dict[str, Any]] = []
        self.exported = 0

    @property
    def model_dir(self) -> str:
        return str(self._folder)

    @property
    def config(self) -> Any:
        return self._given_config

    def checkpoint(self, step: int = 0) -> None:
        with tf.Graph().as_default(), tf1.Session() as session:
            variable = tf1.get_variable("v", initializer=1.0)
            session.run(variable.initializer)
            tf1.train.Saver().save(session, str(self._folder / "model.ckpt"), global_step=step)

    def evaluate(self, **arguments: Any) -> Any:
        self.evaluated.append(arguments)
        if len(self.evaluated) > self._most:
            raise StopIteration
        return self._result

    def _trained(self, arguments: dict[str, Any]) -> Any:
        self.checkpoint()
        self.trained.append(arguments)
        return self

    def export_savedmodel(self, base: Any, serving_input_fn: Any, **options: Any) -> bytes:
        self.exported += 1
        return b"exported"


class Fitted(Noting):
    """As an estimator of contrib.learn."""

    def fit(self, **arguments: Any) -> Any:
        return self._trained(arguments)


class Core(Noting, Estimator):  # type: ignore[misc]
    """As an Estimator with a model_fn."""

    def train(self, **arguments: Any) -> Any:  # type: ignore[override]
        return self._trained(arguments)

    def show_evaluated(self, evaluated: Any) -> None:
        pass


def experiment(estimator: Any, **more: Any) -> trainerd.Experiment:
    return trainerd.Experiment(estimator, train_input_fn="train", eval_input_fn="eval", **more)


def as_task(monkeypatch: pytest.MonkeyPatch, kind: str, index: int, *, workers: int = 2) -> None:
    cluster = {**CLUSTER, "worker": [f"host{3 + number}:2222" for number in range(workers)]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))
