"""A daemon and a library that train a TensorFlow model for days or months.

Importing this package does not import TensorFlow. What is in it is imported when it is first asked for, so that a
command costs what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from trainerd.errors import TrainerdError
from trainerd.version import __version__

if TYPE_CHECKING:
    from trainerd import hooks as hooks
    from trainerd import keras as keras
    from trainerd.checkpoints.contents.kept import keep
    from trainerd.job.definition import GraphJob, Job, KerasJob
    from trainerd.job.params import params
    from trainerd.job.settable import Settable
    from trainerd.programs.estimator.estimator import Estimator
    from trainerd.programs.estimator.export.receivers import (
        ServingInputReceiver,
        build_parsing_serving_input_receiver_fn,
        build_raw_serving_input_receiver_fn,
    )
    from trainerd.programs.estimator.functions.job_estimator import JobEstimator
    from trainerd.programs.estimator.functions.keras_estimator import KerasEstimator
    from trainerd.programs.estimator.model_fn import EstimatorSpec, ModeKeys
    from trainerd.programs.estimator.run_config import RunConfig
    from trainerd.programs.experiment.early_stopping import (
        make_early_stopping_hook,
        stop_if_higher_hook,
        stop_if_lower_hook,
        stop_if_no_decrease_hook,
        stop_if_no_increase_hook,
    )
    from trainerd.programs.experiment.experiment import Experiment
    from trainerd.programs.experiment.export.exporters import BestExporter, FinalExporter, LatestExporter
    from trainerd.programs.experiment.export.strategies import (
        ExportStrategy,
        extend_export_strategy,
        make_best_model_export_strategy,
        make_export_strategy,
        make_parsing_export_strategy,
    )
    from trainerd.programs.experiment.run import run_experiment
    from trainerd.programs.experiment.specs import EvalSpec, TrainSpec
    from trainerd.programs.experiment.train_and_evaluate import train_and_evaluate
    from trainerd.programs.monitored.graph_session import MonitoredSession
    from trainerd.programs.monitored.session_creators import ChiefSessionCreator, WorkerSessionCreator
    from trainerd.programs.monitored.singular_session import SingularMonitoredSession
    from trainerd.programs.monitored.training_session import MonitoredTrainingSession
    from trainerd.programs.supervisor.supervisor import Supervisor
    from trainerd.sessions.tf2.devices import strategy
    from trainerd.workers.place import cluster

__all__ = [
    "BestExporter",
    "ChiefSessionCreator",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Experiment",
    "ExportStrategy",
    "FinalExporter",
    "GraphJob",
    "Job",
    "JobEstimator",
    "KerasEstimator",
    "KerasJob",
    "LatestExporter",
    "ModeKeys",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "RunConfig",
    "ServingInputReceiver",
    "Settable",
    "SingularMonitoredSession",
    "Supervisor",
    "TrainSpec",
    "TrainerdError",
    "WorkerSessionCreator",
    "__version__",
    "build_parsing_serving_input_receiver_fn",
    "build_raw_serving_input_receiver_fn",
    "cluster",
    "extend_export_strategy",
    "keep",
    "make_best_model_export_strategy",
    "make_early_stopping_hook",
    "make_export_strategy",
    "make_parsing_export_strategy",
    "params",
    "run_experiment",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
    "strategy",
    "train_and_evaluate",
]

_LATER = {
    "hooks": "trainerd.hooks",
    "keras": "trainerd.keras",
    "BestExporter": "trainerd.programs.experiment.export.exporters",
    "ChiefSessionCreator": "trainerd.programs.monitored.session_creators",
    "Estimator": "trainerd.programs.estimator.estimator",
    "EstimatorSpec": "trainerd.programs.estimator.model_fn",
    "EvalSpec": "trainerd.programs.experiment.specs",
    "Experiment": "trainerd.programs.experiment.experiment",
    "ExportStrategy": "trainerd.programs.experiment.export.strategies",
    "FinalExporter": "trainerd.programs.experiment.export.exporters",
    "GraphJob": "trainerd.job.definition",
    "Job": "trainerd.job.definition",
    "JobEstimator": "trainerd.programs.estimator.functions.job_estimator",
    "KerasEstimator": "trainerd.programs.estimator.functions.keras_estimator",
    "KerasJob": "trainerd.job.definition",
    "LatestExporter": "trainerd.programs.experiment.export.exporters",
    "ModeKeys": "trainerd.programs.estimator.model_fn",
    "MonitoredSession": "trainerd.programs.monitored.graph_session",
    "MonitoredTrainingSession": "trainerd.programs.monitored.training_session",
    "RunConfig": "trainerd.programs.estimator.run_config",
    "ServingInputReceiver": "trainerd.programs.estimator.export.receivers",
    "Settable": "trainerd.job.settable",
    "SingularMonitoredSession": "trainerd.programs.monitored.singular_session",
    "Supervisor": "trainerd.programs.supervisor.supervisor",
    "TrainSpec": "trainerd.programs.experiment.specs",
    "WorkerSessionCreator": "trainerd.programs.monitored.session_creators",
    "build_parsing_serving_input_receiver_fn": "trainerd.programs.estimator.export.receivers",
    "build_raw_serving_input_receiver_fn": "trainerd.programs.estimator.export.receivers",
    "cluster": "trainerd.workers.place",
    "extend_export_strategy": "trainerd.programs.experiment.export.strategies",
    "keep": "trainerd.checkpoints.contents.kept",
    "make_best_model_export_strategy": "trainerd.programs.experiment.export.strategies",
    "make_early_stopping_hook": "trainerd.programs.experiment.early_stopping",
    "make_export_strategy": "trainerd.programs.experiment.export.strategies",
    "make_parsing_export_strategy": "trainerd.programs.experiment.export.strategies",
    "params": "trainerd.job.params",
    "run_experiment": "trainerd.programs.experiment.run",
    "stop_if_higher_hook": "trainerd.programs.experiment.early_stopping",
    "stop_if_lower_hook": "trainerd.programs.experiment.early_stopping",
    "stop_if_no_decrease_hook": "trainerd.programs.experiment.early_stopping",
    "stop_if_no_increase_hook": "trainerd.programs.experiment.early_stopping",
    "strategy": "trainerd.sessions.tf2.devices",
    "train_and_evaluate": "trainerd.programs.experiment.train_and_evaluate",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name in _LATER:
        module = importlib.import_module(_LATER[name])
        found: object = module if module.__name__ == f"trainerd.{name}" else getattr(module, name)
        return found
    raise AttributeError(f"module 'trainerd' has no attribute {name!r}")
