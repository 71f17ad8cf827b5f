"""The names of `tf.estimator`: `from trainerd.compat import estimator`, and then `estimator.Estimator`."""

from typing import NoReturn

from tensorflow.compat.v1.train import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    ProfilerHook,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
    VocabInfo,
)

from trainerd.compat.estimator import experimental, export, inputs
from trainerd.compat.estimator.missing import missing
from trainerd.programs.estimator.estimator import Estimator
from trainerd.programs.estimator.extend import add_metrics
from trainerd.programs.estimator.graph.warm_start import WarmStartSettings
from trainerd.programs.estimator.model_fn import EstimatorSpec, ModeKeys
from trainerd.programs.estimator.run_config import RunConfig
from trainerd.programs.experiment.export.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from trainerd.programs.experiment.specs import EvalSpec, TrainSpec
from trainerd.programs.experiment.train_and_evaluate import train_and_evaluate

__all__ = [
    "BestExporter",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Exporter",
    "FeedFnHook",
    "FinalExporter",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LatestExporter",
    "LoggingTensorHook",
    "ModeKeys",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "RunConfig",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "add_metrics",
    "experimental",
    "export",
    "inputs",
    "train_and_evaluate",
]


def __getattr__(name: str) -> NoReturn:
    raise missing(name)
